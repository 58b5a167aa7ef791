package machine

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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

func TestFreeMemoryIsWhatControlGroupsLeave(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/memory.max": "1000\n", "a/memory.current": "900\n", "a/memory.stat": "anon 1\ninactive_file 20\nactive_file 3\n",
		"a/b/memory.max": "max\n", "a/b/memory.current": "5\n",
		"memory/c/memory.limit_in_bytes": "500\n", "memory/c/memory.usage_in_bytes": "100\n", "memory/c/memory.stat": "inactive_file 7\ntotal_inactive_file 30\n",
		"full/memory.max": "10\n", "full/memory.current": "12\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for list, want := range map[string]int64{
		"0::/a/b\n": 123, "2:cpu,memory:/c/d\n1:cpu:/a\n": 430, "4:memory:/c\n0::/a/b\n": 123, "0::/full\n": 0,
		"0::/\n": math.MaxInt64, "3:cpu:/a\n": math.MaxInt64, "0::/../a\n": 123, "damaged": math.MaxInt64, "": math.MaxInt64,
	} {
		if got := freeInGroups(root, list); got != want {
			t.Errorf("%q: %d bytes are free, want %d", list, got, want)
		}
	}
}

func TestAddressSpaceIsALimit(t *testing.T) {
	const status = "VmPeak:\t  900 kB\nVmSize:\t  100 kB\n"
	for limit, want := range map[string]int64{"unlimited": math.MaxInt64, "1024000": 1024000 - 100<<10, "1000": 0} {
		limits := "Max data size             unlimited            unlimited            bytes\n" +
			"Max address space         " + limit + "            unlimited            bytes\n"
		if got := freeAddresses([]byte(limits), []byte(status)); got != want {
			t.Errorf("limit %s: %d bytes are free, want %d", limit, got, want)
		}
	}
}

func TestNeedsBeyondTheMemoryAreRefused(t *testing.T) {
	if err := Check("width: 8", 0); err != nil {
		t.Error(err)
	}
	if err := Check("width: 8", 1e18); err != nil && !strings.HasPrefix(err.Error(), "width: 8 needs 1000000000000000000 bytes of memory, ") || err == nil && FreeMemory() < 1e18 {
		t.Errorf("error is %v", err)
	}
}
