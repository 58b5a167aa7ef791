package pictures

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// The pictures of pages are those that Run writes, and they are XML.
func TestPicturesOfPages(t *testing.T) {
	pictures, err := Pictures("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pictures {
		got, err := os.ReadFile("../../docs/" + name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is another picture (go run ./cmd/farfield-lab pictures ../docs): %v", name, err)
		}
		d := xml.NewDecoder(bytes.NewReader(want))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(name, err)
			}
		}
	}
}

// Floors stand in the order of imports that arch_test.go holds.
func TestFloors(t *testing.T) {
	text, err := os.ReadFile("../../arch_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "var layers = []string{")
	list, _, _ = strings.Cut(list, "\n}")
	above := len(list)
	for _, f := range floors {
		lowest := above
		for name := range strings.SplitSeq(f.packages, ", ") {
			if name == "farfield" { // the root
				name = ""
			}
			at := strings.Index(list, "\n\t\""+name+"\",")
			if at < 0 || at >= above {
				t.Errorf("%q of the floor %q is no package below the floor above it", name, f.packages)
			}
			lowest = min(lowest, at)
		}
		above = lowest
	}
}

// More cells and higher orders err less, and all less than near keys alone.
func TestDialTurns(t *testing.T) {
	x := newDial()
	last := x.error(nil, 0)
	for _, cells := range []int{8, 64, 512} {
		of := cellsOf(x.keys, cells)
		least := x.error(of, 0)
		if least >= last {
			t.Errorf("%d cells err by %g, fewer by %g", cells, least, last)
		}
		last = least
		for order := 1; order <= 2; order++ {
			e := x.error(of, order)
			if e >= least && cells > 1 {
				t.Errorf("%d cells of order %d err by %g, of the order below by %g", cells, order, e, least)
			}
			least = e
		}
	}
}
