package reproduce

import "strings"

// BitsFile is the file of the module that has the bits of short trainings, a line each:
// the row, the training, and for each instruction set a digest of losses, gradients,
// weights and outputs. Kernels of all of them have the same bits, but by their speeds they
// choose other forms of attention. The digests are those of the code beside them
// (TestBits): while they stay, so does what trainings of the rows score, however the code
// changes.
const BitsFile = "internal/lab/reproduce/testdata/bits.txt"

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
