package cpu

import "testing"

func TestModelNameIsTheFirst(t *testing.T) {
	text := "processor\t: 0\nvendor_id\t: X\nmodel name\t: Some: CPU @ 3 GHz\n\nmodel name\t: other\n"
	if got := modelName(text); got != "Some: CPU @ 3 GHz" {
		t.Errorf("%q", got)
	}
	if got := modelName("processor: 0\n"); got != "" {
		t.Errorf("%q where there is none", got)
	}
}

func TestSizesHaveUnits(t *testing.T) {
	for text, want := range map[string]int{"48K": 48 << 10, "2M": 2 << 20, "512": 512, "": 0, "K": 0, "big": 0} {
		if got := parseSize(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}
