//go:build !float64

package comm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/sequence"
)

// pairwise is the sum of leaves lo ≤ i < hi, where the left part is the largest power
// of two below their number.
func pairwise(lo, hi, length int) []float32 {
	if hi-lo == 1 {
		return numbers[float32](lo, length)
	}
	half := 1
	for 2*half < hi-lo {
		half *= 2
	}
	sum := pairwise(lo, lo+half, length)
	for i, y := range pairwise(lo+half, hi, length) {
		sum[i] += y
	}
	return sum
}

// The bits of a tree depend on the number of its leaves alone, not on their ranks, also
// when it is reused.
func TestTreeSumDependsOnTheNumberOfLeavesAlone(t *testing.T) {
	for _, leaves := range []int{1, 2, 3, 5, 8, 13} {
		for _, length := range []int{1, 3, 1001} {
			want := pairwise(0, leaves, length)
			sum := func(c *comm.Comm, tree *comm.Tree) error {
				part := func(rank int) (lo, hi int) {
					a, b := sequence.PartRange(int64(leaves), rank, c.Size())
					return int(a), int(b)
				}
				lo, hi := part(c.Rank())
				tree.Reset(lo)
				for i := lo; i < hi; i++ {
					tree.AddLeaf(numbers[float32](i, length))
				}
				x := make([]float32, length)
				if err := tree.SumRanks(c, x, part); err != nil {
					return err
				}
				if !slices.Equal(x, want) {
					return fmt.Errorf("the sum is %v…, not %v…", x[0], want[0])
				}
				return nil
			}
			var alone comm.Tree
			for range 2 {
				if err := sum(nil, &alone); err != nil {
					t.Errorf("%d leaves alone: %v", leaves, err)
				}
			}
			for _, size := range []int{1, 2, 3, 4, 7} {
				err := comm.RunLocal(size, func(c *comm.Comm) error {
					var tree comm.Tree
					for range 2 {
						if err := sum(c, &tree); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("%d leaves of %d ranks: %v", leaves, size, err)
				}
			}
		}
	}
}
