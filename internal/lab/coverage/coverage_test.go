package coverage

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	shares, err := readProfile(strings.NewReader(`mode: set
github.com/farfield-ml/farfield/array/npy.go:1.2,3.4 3 0
github.com/farfield-ml/farfield/array/npy.go:3.4,5.6 1 0
github.com/farfield-ml/farfield/farfield.go:1.2,3.4 2 7
mode: set
github.com/farfield-ml/farfield/array/npy.go:1.2,3.4 3 1
github.com/farfield-ml/farfield/array/npy.go:3.4,5.6 1 0
`))
	if err != nil {
		t.Fatal(err)
	}
	text, below := writeTable(shares, 90)
	const want = `| package | statements | reached |
|---|---|---|
| farfield | 2 | 100.0 % |
| array | 4 | 75.0 % |
| all | 6 | 83.3 % |
`
	if text != want {
		t.Errorf("table is\n%swant\n%s", text, want)
	}
	if len(below) != 1 || below[0] != "array (75.0)" {
		t.Errorf("below the bar: %q", below)
	}
}

func TestDamagedProfiles(t *testing.T) {
	for _, line := range []string{"one two", "a.go:1.2,3.4 x 1", "a.go:1.2,3.4 1 x"} {
		if _, err := readProfile(strings.NewReader(line)); err == nil {
			t.Errorf("%q is read", line)
		}
	}
}

func TestLibrary(t *testing.T) {
	for name, want := range map[string]bool{"": true, "attention": true, "internal/kernel": true, "cmd/farfield": false, "internal/lab/coverage": false, "internal/lab/oracle": false, "comm/mpi": false, "comm": true} {
		if libraryPackages(name) != want {
			t.Errorf("library(%q) is %v", name, !want)
		}
	}
}
