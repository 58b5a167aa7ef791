package train

import (
	"slices"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train/data"
)

// groupBatches is the number of batches whose samples are sorted by length together.
const groupBatches = 32

// lengthGroups orders the samples of epochs so that the samples of a batch have similar
// lengths. Each epoch has a whole number of batches.
type lengthGroups struct {
	lengths data.LengthReporter // nil: there are no groups
	batch   int
	first   int   // position of order[0] in the run
	order   []int // samples of the current group
	sorted  []int
}

// sampleAt returns the sample of n for position i of the run.
func (g *lengthGroups) sampleAt(i, n int, key rng.Key) int {
	whole := n // positions of an epoch
	if n > g.batch {
		whole -= n % g.batch
	}
	epoch, at := i/whole, i%whole
	size := groupBatches * g.batch
	group := at / size
	first := epoch*whole + group*size
	if g.order == nil || g.first != first {
		last := min((group+1)*size, whole)
		g.sorted = g.sorted[:0]
		for position := group * size; position < last; position++ {
			g.sorted = append(g.sorted, key.Fold(uint64(epoch)).Permute(position, n))
		}
		slices.SortStableFunc(g.sorted, func(a, b int) int {
			return g.lengths.SampleLength(data.Train, a) - g.lengths.SampleLength(data.Train, b)
		})
		count := (len(g.sorted) + g.batch - 1) / g.batch
		g.order, g.first = g.order[:0], first
		for k := range count {
			from := key.Fold(uint64(first)).Fold(1).Permute(k, count) * g.batch
			g.order = append(g.order, g.sorted[from:min(from+g.batch, len(g.sorted))]...)
		}
	}
	return g.order[i-first]
}
