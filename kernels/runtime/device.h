// What emitted kernels need of a CUDA device, for NVRTC: memory, packs of neighbouring elements, threads and their
// synchronisation. The emulator defines the same functions for g++. Includes nothing: NVRTC brings no headers along.
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define ST_DEVICE __device__ __forceinline__

// --- where this thread is

ST_DEVICE int st_thread() { return (int)threadIdx.x; }
ST_DEVICE int st_block() { return (int)blockIdx.x; }
ST_DEVICE int st_grid() { return (int)gridDim.x; }

// --- packs: neighbouring elements that one instruction moves; N * sizeof(T) is 2, 4, 8 or 16

template <int N, class T> struct alignas(N * sizeof(T)) st_pack {
  T x[N];
};
template <int bytes> struct st_word;
template <> struct st_word<2> { typedef unsigned short type; };
template <> struct st_word<4> { typedef unsigned type; };
template <> struct st_word<8> { typedef uint2 type; };
template <> struct st_word<16> { typedef uint4 type; };
template <class T> struct st_as { typedef T type; };

// --- device memory. A plain load of a `const __restrict__` parameter becomes ld.global.nc. What this launch also writes is
// loaded past the first-level cache, which other multiprocessors' stores do not reach (cg).

template <class T, class I> ST_DEVICE T st_load(const T* p, I i) { return p[i]; }
template <class T, class I> ST_DEVICE T st_load_cg(const T* p, I i) { return __ldcg(p + i); }
template <class T, class I> ST_DEVICE void st_store(T* p, I i, typename st_as<T>::type v) { p[i] = v; }
template <int N, class T, class I> ST_DEVICE st_pack<N, T> st_load_pack(const T* p, I i) {
  return *(const st_pack<N, T>*)(p + i);
}
template <int N, class T, class I> ST_DEVICE st_pack<N, T> st_load_pack_cg(const T* p, I i) {
  typedef typename st_word<N * sizeof(T)>::type word;
  const word w = __ldcg((const word*)(p + i));
  st_pack<N, T> r;
  memcpy(&r, &w, sizeof r);
  return r;
}
template <int N, class T, class I> ST_DEVICE void st_store_pack(T* p, I i, st_pack<N, T> v) {
  *(st_pack<N, T>*)(p + i) = v;
}

// --- shared memory of the block

extern __shared__ uint4 st_shared_memory[];
#define ST_SHARED(T, offset) ((T*)((char*)st_shared_memory + (offset)))
template <class T, class I> ST_DEVICE T st_shared_load(const T* p, I i) { return p[i]; }
template <class T, class I> ST_DEVICE void st_shared_store(T* p, I i, typename st_as<T>::type v) { p[i] = v; }
template <int N, class T, class I> ST_DEVICE st_pack<N, T> st_shared_load_pack(const T* p, I i) {
  return *(const st_pack<N, T>*)(p + i);
}
template <int N, class T, class I> ST_DEVICE void st_shared_store_pack(T* p, I i, st_pack<N, T> v) {
  *(st_pack<N, T>*)(p + i) = v;
}

// --- threads among themselves

// The value of the lane whose number differs in the bits of `mask`; the whole warp takes part. Small types travel as int.
template <class T> ST_DEVICE T st_shuffle_xor(T v, int mask) { return (T)__shfl_xor_sync(0xffffffffu, v, mask); }
ST_DEVICE void st_sync_warp() { __syncwarp(); }
ST_DEVICE void st_sync_block() { __syncthreads(); }

// --- the grid barrier's word

ST_DEVICE unsigned st_atomic_add_acq_rel(unsigned* p, unsigned v) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(__cvta_generic_to_global(p)), "r"(v) : "memory");
  return before;
}
ST_DEVICE unsigned st_load_acquire(const unsigned* p) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(p)) : "memory");
  return v;
}
ST_DEVICE void st_pause() { __nanosleep(32); }
