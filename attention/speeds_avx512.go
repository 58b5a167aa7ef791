package attention

// Not measured: the forms reach the same shares of the peak as with AVX2 where
// a processor does 512-bit instructions as two halves.
var avx512Speeds = avx2Speeds
