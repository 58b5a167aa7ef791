//go:build !float64

package states

import (
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/snapshot"
)

// What fields write is what fields of the same lengths read; a count beyond the tokens fails.
func TestFieldsReadWhatTheyWrite(t *testing.T) {
	make3 := func(n int64, x float32, y float64) Fields {
		return Fields{}.AddCounts([]int64{n}).AddElements([]float32{x, 2 * x}).AddWide([]float64{y})
	}
	f := make3(7, 1.5, 0.1)
	w := snapshot.NewWriter(nil)
	before := len(w.Data)
	f.Write(w)
	if n := int64(len(w.Data) - before); n != f.Bytes() {
		t.Errorf("%d bytes, Bytes is %d", n, f.Bytes())
	}
	data, err := w.End()
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{7: "", 6: "a count is 7, of 6 tokens"} {
		r, err := snapshot.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		g := make3(0, 0, 0)
		g.Read(r, most)
		err = r.End()
		if want == "" && (err != nil || !reflect.DeepEqual(f, g)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("of %d tokens: %v, %v", most, g, err)
		}
	}
	g := make3(0, 0, 0)
	g.Copy(f)
	if !reflect.DeepEqual(f, g) {
		t.Errorf("copied %v", g)
	}
	if g.Clear(); !reflect.DeepEqual(g, make3(0, 0, 0)) {
		t.Errorf("cleared %v", g)
	}
}
