// Kernels whose needs differ in every way that the assembler reports: compiled per architecture for the golden logs.
extern "C" __global__ void __launch_bounds__(256, 1) plain(const float* __restrict__ x, float* __restrict__ y) {
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128, 1) shared_memory(float* x) {
  __shared__ float s[1024];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128, 1) local_array(const int* at, float* x) {
  float v[32];
  for (int k = 0; k < 32; ++k) v[k] = x[threadIdx.x + 128 * k];
  for (int k = 0; k < 99; ++k) v[at[k] & 31] *= v[at[k + 99] & 31];
  for (int k = 0; k < 32; ++k) x[threadIdx.x + 128 * k] = v[k];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilled(float* x) {
  float v[64];
#pragma unroll
  for (int k = 0; k < 64; ++k) v[k] = x[threadIdx.x + 1024 * k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 64; ++k) x[threadIdx.x + 1024 * (63 - k)] = v[k] * v[(k * 7 + 3) % 64];
}
__device__ __noinline__ double far_call(double x) { return sin(x); }  // reduces huge angles in an array of its own
extern "C" __global__ void __launch_bounds__(64, 1) calls(double* x) { x[threadIdx.x] = far_call(x[threadIdx.x]); }
