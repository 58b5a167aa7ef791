package arena

import "testing"

// Memory in huge pages keeps its contents.
func TestHugePagesKeepContents(t *testing.T) {
	for _, n := range []int{0, 1, minHugePages / 8, 1 << 20} {
		x := make([]float64, n)
		AdviseHugePages(x)
		for i := range x {
			if x[i] != 0 {
				t.Fatalf("%d numbers: [%d] is %v", n, i, x[i])
			}
			x[i] = float64(i)
		}
		for i := range x {
			if x[i] != float64(i) {
				t.Fatalf("%d numbers: [%d] is %v", n, i, x[i])
			}
		}
	}
}
