package machine

import "testing"

func TestLinesOfProcFilesAreRead(t *testing.T) {
	text := []byte("MemTotal:       8000 kB\nMemAvailable:    4321 kB\n")
	if n, ok := readKibibytes(text, "MemAvailable:"); n != 4321<<10 || !ok {
		t.Errorf("%d bytes, %t", n, ok)
	}
	if _, ok := readKibibytes(text, "VmHWM:"); ok {
		t.Error("found what is not there")
	}
}

func TestPeakMemoryGrowsWithAllocation(t *testing.T) {
	before := PeakMemory()
	x := make([]byte, 64<<20)
	for i := 0; i < len(x); i += 4096 {
		x[i] = 1
	}
	if after := PeakMemory(); after < before || after < int64(len(x)) {
		t.Errorf("peak of %d bytes after %d, with %d in use", after, before, len(x))
	}
	if x[4096] != 1 || FreeMemory() <= 0 {
		t.Errorf("%d bytes are free", FreeMemory())
	}
}
