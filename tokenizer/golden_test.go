package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestEncodingsOfNormalizersAreReferenceEncodings compares ids, offsets and normalized texts with those of
// tokenizers 0.23.3 in testdata/offsets.json, which testdata/offsets.py wrote.
func TestEncodingsOfNormalizersAreReferenceEncodings(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/offsets.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Charsmap string // for CHARSMAP in a tokenizer
		Files    []struct {
			Name      string
			Tokenizer json.RawMessage
			Cases     []struct {
				Text       string
				Normalized *string
				IDs        []int32
				Offsets    [][2]int
			}
		}
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, f := range all.Files {
		v, err := Parse(bytes.ReplaceAll(f.Tokenizer, []byte("CHARSMAP"), []byte(all.Charsmap)))
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		failures := 0
		for _, c := range f.Cases {
			count++
			e := v.Encode(c.Text)
			got := ""
			if c.Normalized != nil {
				in := new(text)
				in.set([]byte(c.Text), 0)
				in, _ = normalizeAll(v.normalize, in, new(text))
				if got = string(in.b); got != *c.Normalized {
					t.Errorf("%s: %q is normalized to %q, want %q", f.Name, c.Text, got, *c.Normalized)
				}
			}
			if (!slices.Equal(e.IDs, c.IDs) || fmt.Sprint(e.Offsets) != fmt.Sprint(c.Offsets)) && failures < 4 {
				failures++
				t.Errorf("%s: %q (normalized %q): ids %v at\n%v, want %v at\n%v", f.Name, c.Text, got, e.IDs, e.Offsets, c.IDs, c.Offsets)
			}
		}
	}
	t.Logf("%d texts compared", count)
}
