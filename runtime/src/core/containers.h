//===- containers.h - Growing arrays and texts ------------------*- C++ -*-===//
//
// The runtime links to no C++ library, so that a C program links it with `cc`
// alone: these two stand in for std::vector and std::string. They hold tables
// and names, which are small: without memory for them the process ends. What scales
// with a model or comes from a file is allocated elsewhere (Pages), or by
// Array::tryResize, and checked.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_CORE_CONTAINERS_H
#define TRAINC_CORE_CONTAINERS_H

#include <new>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <unistd.h>

namespace trainc {

/// Ends the process, and says why.
[[noreturn]] inline void endWithoutMemory() {
  static const char text[] = "trainc: no memory for tables of the runtime\n";
  (void)!::write(2, text, sizeof(text) - 1);
  abort();
}

/// Memory for tables; ends the process if the machine has none left.
inline void *reallocate(void *memory, size_t bytes) {
  void *result = realloc(memory, bytes ? bytes : 1);
  if (!result)
    endWithoutMemory();
  return result;
}

/// A copy of a small text, to be freed.
inline char *copyText(const char *text) {
  char *copy = strdup(text);
  if (!copy)
    endWithoutMemory();
  return copy;
}

template <typename T> void swap(T &a, T &b) {
  T old = a;
  a = b;
  b = old;
}

/// A growing array of plain values.
template <typename T> class Array {
  static_assert(std::is_trivially_copyable_v<T>);

public:
  Array() = default;
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  ~Array() { free(elements); }

  size_t size() const { return count; }
  T *data() { return elements; }
  const T *data() const { return elements; }
  T &operator[](size_t i) { return elements[i]; }
  const T &operator[](size_t i) const { return elements[i]; }
  T *begin() { return elements; }
  T *end() { return elements + count; }
  const T *begin() const { return elements; }
  const T *end() const { return elements + count; }

  void push(T value) {
    if (count == capacity)
      reserve(capacity ? 2 * capacity : 16);
    elements[count++] = value;
  }
  /// New elements are zero bytes.
  void resize(size_t size) {
    if (size > capacity)
      reserve(size);
    if (size > count)
      memset(static_cast<void *>(elements + count), 0,
             (size - count) * sizeof(T));
    count = size;
  }
  /// The same; false if there is no memory, and nothing has changed.
  [[nodiscard]] bool tryResize(size_t size) {
    if (size > SIZE_MAX / sizeof(T))
      return false;
    if (size > capacity) {
      void *more = realloc(elements, size * sizeof(T));
      if (!more)
        return false;
      elements = static_cast<T *>(more);
      capacity = size;
    }
    resize(size);
    return true;
  }
  void clear() { count = 0; }
  void swap(Array &other) {
    trainc::swap(elements, other.elements);
    trainc::swap(count, other.count);
    trainc::swap(capacity, other.capacity);
  }

private:
  void reserve(size_t size) {
    if (size > SIZE_MAX / sizeof(T))
      endWithoutMemory();
    elements = static_cast<T *>(reallocate(elements, size * sizeof(T)));
    capacity = size;
  }

  T *elements = nullptr;
  size_t count = 0, capacity = 0;
};

/// A growing text.
class Text {
public:
  Text() = default;
  Text(const Text &) = delete;
  Text &operator=(const Text &) = delete;
  ~Text() { free(bytes); }

  const char *c_str() const { return bytes ? bytes : ""; }
  const char *data() const { return bytes; }
  size_t size() const { return length; }
  void clear() {
    length = 0;
    if (bytes)
      bytes[0] = 0;
  }
  void append(const char *text, size_t size) {
    grow(size);
    memcpy(bytes + length, text, size);
    length += size;
    bytes[length] = 0;
  }
  void append(const char *text) { append(text, strlen(text)); }
  void append(char c) { append(&c, 1); }
  __attribute__((format(printf, 2, 0))) void vformat(const char *format,
                                                     va_list arguments) {
    va_list copy;
    va_copy(copy, arguments);
    int size = vsnprintf(nullptr, 0, format, copy);
    va_end(copy);
    if (size < 0)
      return;
    grow(static_cast<size_t>(size));
    vsnprintf(bytes + length, static_cast<size_t>(size) + 1, format, arguments);
    length += static_cast<size_t>(size);
  }
  __attribute__((format(printf, 2, 3))) void format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vformat(format, arguments);
    va_end(arguments);
  }

private:
  void grow(size_t more) {
    if (length + more + 1 > capacity) {
      capacity = 2 * (length + more + 1);
      bytes = static_cast<char *>(reallocate(bytes, capacity));
      bytes[length] = 0;
    }
  }

  char *bytes = nullptr;
  size_t length = 0, capacity = 0;
};

/// An object without the C++ library's operator new.
template <typename T> T *create() {
  struct Place {
    alignas(T) unsigned char bytes[sizeof(T)];
  };
  void *memory = aligned_alloc(alignof(Place) < 64 ? 64 : alignof(Place),
                               (sizeof(Place) + 63) / 64 * 64);
  if (!memory)
    endWithoutMemory();
  return ::new (memory) T();
}
template <typename T> void destroy(T *object) {
  if (object) {
    object->~T();
    free(object);
  }
}

} // namespace trainc

#endif // TRAINC_CORE_CONTAINERS_H
