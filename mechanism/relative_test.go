package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/mechanism/internal/zoo"
)

// The bucket grows with the distance, singly at first and by powers up to the last.
func TestDistanceBuckets(t *testing.T) {
	for distance, want := range map[int]int{
		0: 0, -1: 1, -7: 7, -8: 8, -11: 8, -12: 9, -15: 9, -16: 10, -31: 11, -32: 12, -63: 13, -64: 14, -90: 14, -91: 15, -127: 15, -128: 15, -500: 15,
		1: 17, 7: 23, 8: 24, 16: 26, 32: 28, 64: 30, 127: 31, 500: 31,
	} {
		if got := zoo.DistanceBucket(distance, 32); got != want {
			t.Errorf("distance %d is in bucket %d, want %d", distance, got, want)
		}
	}
}
