package reproduce

import "strings"

// BitsFile holds the bits of short trainings, a line each: the row, the training, and for
// each instruction set a digest of losses, gradients, weights and outputs. Kernels of all
// sets have the same bits, but their speeds choose other forms of attention. TestBits holds
// that the digests match the code. While they stay, so do the scores of the rows' trainings,
// however the code changes.
const BitsFile = "lab/reproduce/testdata/bits.txt"

// Bits returns the digests of a row that a file of them has, each by its training and
// its instruction set.
func (r *Row) Bits(file string) map[[2]string]string {
	list := map[[2]string]string{}
	for line := range strings.Lines(file) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != r.Name {
			continue
		}
		for _, x := range f[2:] {
			isa, digest, _ := strings.Cut(x, "=")
			list[[2]string{f[1], isa}] = digest
		}
	}
	return list
}
