package comm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/tensor"
)

func TestResultOfRankZeroReachesAllRanks(t *testing.T) {
	type report struct{ Steps []int }
	err := comm.RunLocal(3, func(c *comm.Comm) error {
		told, err := comm.CallOnRankZero(c, func() (report, error) {
			if c.Rank() != 0 {
				return report{}, fmt.Errorf("rank %d was asked", c.Rank())
			}
			return report{[]int{1, 2}}, nil
		})
		if err != nil {
			return err
		}
		if !slices.Equal(told.Steps, []int{1, 2}) {
			return fmt.Errorf("rank %d was told %v", c.Rank(), told)
		}
		if _, err := comm.CallOnRankZero(c, func() (report, error) { return report{}, fmt.Errorf("none") }); err == nil || err.Error() != "rank 0: none" {
			return fmt.Errorf("the error is %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// pairwise is the sum of leaves lo ≤ i < hi, where the left part is the largest power
// of two below their number.
func pairwise(lo, hi, length int) []tensor.Float {
	if hi-lo == 1 {
		return numbers[tensor.Float](lo, length)
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
					tree.AddLeaf(numbers[tensor.Float](i, length))
				}
				x := make([]tensor.Float, length)
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
