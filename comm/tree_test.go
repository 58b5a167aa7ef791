package comm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/comm"
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
