package inference

import (
	"fmt"
	"testing"
)

// TestOffsetsOfLabelsAreOfTheGivenBytes has texts with bytes that are not UTF-8, which the model reads as U+FFFD.
func TestOffsetsOfLabelsAreOfTheGivenBytes(t *testing.T) {
	for _, c := range []struct {
		text    string
		offsets [][2]int // of validText(text)
		want    string
	}{
		{"aé", [][2]int{{0, 0}, {0, 1}, {1, 3}}, "[[0 0] [0 1] [1 3]]"},
		{"\xffab", [][2]int{{0, 3}, {3, 4}, {4, 5}}, "[[0 1] [1 2] [2 3]]"},
		{"a\xff\xfeb\xe4", [][2]int{{0, 1}, {1, 4}, {4, 5}, {5, 8}}, "[[0 1] [1 3] [3 4] [4 5]]"},
		{"\ufffd\xffé", [][2]int{{0, 3}, {3, 6}, {6, 8}}, "[[0 3] [3 4] [4 6]]"},
	} {
		if moveOffsets(c.offsets, c.text, validText(c.text)); fmt.Sprint(c.offsets) != c.want {
			t.Errorf("%q: offsets are %v, want %s", c.text, c.offsets, c.want)
		}
	}
}
