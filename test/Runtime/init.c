// Initial values: the pinned definition of runtime.h, threads, seeds, roles.
//
// RUN: %cc -std=c11 -Wall -Wextra -Werror -I%runtime_include -I%S/Inputs %s %runtime_lib/libtrainc_runtime.a -lm -ldl -pthread -o %t
// RUN: %t

#include "handmade.h"

/// Inverse normal distribution by bisection of erfc: another way to the same.
static double quantile(double p) {
  double low = -9, high = 9;
  for (int i = 0; i < 200; ++i) {
    double middle = (low + high) / 2;
    if (0.5 * erfc(-middle / sqrt(2)) < p)
      low = middle;
    else
      high = middle;
  }
  return (low + high) / 2;
}

static void philox(uint64_t low, uint64_t high, uint64_t key, uint32_t *c) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  c[0] = (uint32_t)low, c[1] = (uint32_t)(low >> 32);
  c[2] = (uint32_t)high, c[3] = (uint32_t)(high >> 32);
  for (int i = 0; i < 10; ++i, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                        (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a};
    memcpy(c, next, sizeof next);
  }
}

static double uniform(const char *name, uint64_t seed, uint64_t i) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (; *name; ++name)
    hash = (hash ^ (unsigned char)*name) * 0x100000001B3ull;
  uint32_t r[4];
  philox(i / 2, hash, seed, r);
  uint64_t bits =
      i % 2 ? r[2] | (uint64_t)r[3] << 32 : r[0] | (uint64_t)r[1] << 32;
  return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

int main(void) {
  // The generator of the test itself, against the vectors of Random123.
  uint32_t r[4];
  philox(0, 0, 0, r);
  CHECK(r[0] == 0x6627e8d5 && r[1] == 0xe169c58d && r[2] == 0xbc57ac4c &&
        r[3] == 0x9b00dbd8);

  trainc_artifact *artifact = open_handmade();
  uint64_t seed = (UINT64_C(1) << 40) + 42;
  trainc_trainer *one = make_trainer(artifact, 1, seed);
  trainc_trainer *four = make_trainer(artifact, 4, seed);
  trainc_trainer *other = make_trainer(artifact, 1, 43);
  CHECK(same_state(one, four));
  CHECK(!same_state(one, other));

  float weight[WEIGHTS], bias[CLASSES], momentum[CLASSES], levels[2];
  uint16_t copy[WEIGHTS], table[2];
  int64_t steps;
  OK(trainc_tensor_read(one, 0, TRAINC_F32, weight, sizeof weight));
  OK(trainc_tensor_read(one, 1, TRAINC_F32, bias, sizeof bias));
  OK(trainc_tensor_read(one, 2, TRAINC_BF16, copy, sizeof copy));
  OK(trainc_tensor_read(one, 3, TRAINC_F16, table, sizeof table));
  OK(trainc_tensor_read(one, 7, TRAINC_F32, momentum, sizeof momentum));
  OK(trainc_tensor_read(one, 8, TRAINC_I64, &steps, sizeof steps));
  OK(trainc_tensor_read(one, 9, TRAINC_F32, levels, sizeof levels));
  for (uint64_t i = 0; i < WEIGHTS; ++i) {
    double expected = 0.5 * quantile(uniform("fc.weight", seed, i));
    CHECK(fabs(weight[i] - expected) <= 0x1p-24 * fabs(expected) + 1e-12);
    uint32_t bits;
    memcpy(&bits, &weight[i], 4);
    CHECK(copy[i] == (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16));
  }
  for (uint64_t i = 0; i < CLASSES; ++i)
    CHECK(bias[i] == (float)(-1 + 2 * uniform("fc.bias", seed, i)));
  CHECK(table[0] == 0x2E66 && table[1] == 0x2E66); // 0.1
  CHECK(momentum[0] == 0.25f && steps == 7);
  CHECK(levels[0] == 1.5f && levels[1] == -2.5f);

  double value;
  OK(trainc_get_scalar(one, "seed", &value));
  CHECK(value == (double)seed);

  trainc_trainer_options options = {.size = sizeof options,
                                    .flags = TRAINC_TRAINER_NO_INIT};
  trainc_trainer *empty;
  OK(trainc_trainer_create(artifact, &options, &empty));
  OK(trainc_tensor_read(empty, 0, TRAINC_F32, weight, sizeof weight));
  for (int i = 0; i < WEIGHTS; ++i)
    CHECK(weight[i] == 0);
  options.seed = UINT64_C(1) << 53;
  trainc_trainer *none;
  CHECK(trainc_trainer_create(artifact, &options, &none) ==
        TRAINC_INVALID_ARGUMENT);
  trainc_trainer_destroy(one);
  trainc_trainer_destroy(four);
  trainc_trainer_destroy(other);
  trainc_trainer_destroy(empty);
  trainc_artifact_close(artifact);
  return 0;
}
