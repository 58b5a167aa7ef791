package token

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSequenceIsEncodedText(t *testing.T) {
	for name, text := range map[string]string{
		"ascii":         strings.Repeat("abc d\n", 300),
		"mixed":         strings.Repeat("aé€z\U0001F600 ", 300),
		"several bytes": strings.Repeat("€", 3*markEvery),
		"one":           "é",
	} {
		for _, v := range []*Vocabulary{mustChars(t, text), NewByteVocabulary()} {
			want, err := v.Encode(nil, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			s, err := v.NewSequence([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if s.Len() != len(want) || s.Bytes() != int64(len(text)) {
				t.Errorf("%s, %s: %d tokens of %d bytes, want %d of %d", name, v.Kind(), s.Len(), s.Bytes(), len(want), len(text))
			}
			for _, from := range []int{0, 1, markEvery - 1, markEvery, markEvery + 1, len(want) - 1, len(want)} {
				for _, n := range []int{0, 1, 5, markEvery, len(want)} {
					if from < 0 || from > len(want) {
						continue
					}
					to := min(from+n, len(want))
					if got := s.Append([]int32{-7}, from, to); !slices.Equal(got[1:], want[from:to]) {
						t.Errorf("%s, %s: tokens %d to %d are wrong", name, v.Kind(), from, to)
					}
					part := s.Slice(from, to)
					if got := slices.Collect(part.All()); !slices.Equal(got, want[from:to]) {
						t.Errorf("%s, %s: slice %d to %d is wrong", name, v.Kind(), from, to)
					}
					if got, bytes := part.Bytes(), v.CountBytes(want[from:to]); got != bytes {
						t.Errorf("%s, %s: slice %d to %d has %d bytes, want %d", name, v.Kind(), from, to, got, bytes)
					}
					half := (to - from) / 2
					if got := part.Append(nil, half, to-from); !slices.Equal(got, want[from+half:to]) {
						t.Errorf("%s, %s: a slice of a slice is wrong", name, v.Kind())
					}
				}
			}
		}
	}
}

func TestSequenceRefusesForeignText(t *testing.T) {
	v := mustChars(t, "aé")
	for text, want := range map[string]string{"aé\xff": "byte 0xff at offset 3", "éab": `character 'b' at offset 3`} {
		_, err := v.NewSequence([]byte(text))
		_, encoded := v.Encode(nil, []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || err.Error() != fmt.Sprint(encoded) {
			t.Errorf("%q: %v, Encode says %v", text, err, encoded)
		}
	}
}

func TestSequenceTakesLittleMoreThanText(t *testing.T) {
	text := bytes.Repeat([]byte("aé€ "), 1<<16)
	v := mustChars(t, string(text[:7]))
	s, err := v.NewSequence(text)
	if err != nil {
		t.Fatal(err)
	}
	if more := 8 * cap(s.marks); more*12 > len(text) {
		t.Errorf("%d bytes of offsets for %d of text", more, len(text))
	}
	if n := testing.AllocsPerRun(10, func() {
		for range s.Slice(1000, 1100).All() {
		}
	}); n > 0 {
		t.Errorf("reading a window allocates %v times", n)
	}
}
