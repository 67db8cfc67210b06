/* How functions over many bytes are compiled. */

#ifndef SHARDMILL_VECTORS_H
#define SHARDMILL_VECTORS_H

#define INLINE static inline __attribute__((always_inline))

/* With wider vectors where the processor has them. */
#if defined(__x86_64__) && defined(__GLIBC__) && (!defined(__clang__) || __clang_major__ >= 14)
#define VARIANTS __attribute__((target_clones("avx2", "default")))
#else
#define VARIANTS
#endif

#endif
