package bench

import "testing"

func TestCPUIsOneLine(t *testing.T) {
	for _, c := range []struct {
		info CPU
		want string
	}{
		{CPU{Arch: "arm64", Cores: 1}, "arm64, 1 core"},
		{CPU{Model: "Some CPU", Cores: 2, L1: 32 << 10, L2: 1 << 20, L3: 33 << 20}, "Some CPU, 2 cores, caches 32 KiB, 1 MiB, 33 MiB"},
		{CPU{Model: "Some CPU", Cores: 4, L2: 1280 << 10}, "Some CPU, 4 cores, caches 1280 KiB"},
	} {
		if got := c.info.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if DescribeCPU().Cores < 1 {
		t.Error("a machine without a core")
	}
}
