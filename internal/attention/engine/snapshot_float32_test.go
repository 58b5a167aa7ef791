//go:build !float64

package engine

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// The committed snapshots were written on a 64-bit little-endian processor. Restored and saved
// again they are the same bytes on every processor. The outputs after them must also agree with
// a state made here, because bytes in the wrong order would survive the round trip but give
// other numbers.
func TestCommittedSnapshots(t *testing.T) {
	data, restore := snapshots(t)
	for i, b := range data {
		path := filepath.Join("testdata", fmt.Sprintf("state%d", i))
		if *write {
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		committed, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var out [2][]float32
		for j, b := range [][]byte{b, committed} {
			st, err := restore[i](b)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			again, err := st.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, b) {
				t.Errorf("%s: saved again, other bytes", path)
			}
			c := calltest.NewCall(calltest.Problems()["causal, decay"])
			c.Q.H, c.K.H, c.V.H, c.LogG.H = 2, 1, 1, 1
			if i < 3 {
				c.LogG = tensor.Heads{}
			}
			o := calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
			if err := st.Step(o, c); err != nil {
				t.Fatal(err)
			}
			out[j] = o.Data
		}
		// Weighted means of values of size 1, over as many keys as a few roundings spoil.
		for k, want := range out[0] {
			if got := out[1][k]; !(math.Abs(float64(got-want)) <= 1e-5) {
				t.Fatalf("%s: output %d is %v, of a state made here %v", path, k, got, want)
			}
		}
	}
}

func TestReadSnapshotHeader(t *testing.T) {
	const n = headtask.KeyBlock + 40
	c := stateCall(n, 5, 3, 0)
	_, st := softmaxState(t, c)
	steps(t, st, calltest.Poisoned(2, 6, n, 3), c, 0, n)
	data, err := st.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := states.ReadHeader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	want := states.Header{Version: snapshot.Version, Kind: states.CacheKind, Mechanism: h.Mechanism, Setting: h.Setting, Element: 4,
		B: 2, H: 6, Hkv: h.Hkv, D: 5, Dv: 3, Chunk: h.Chunk, Tokens: n, Bytes: int64(len(data)), Parameters: "00000000"}
	if h != want || h.Mechanism == "" || h.Hkv < 1 {
		t.Errorf("%+v, want %+v", h, want)
	}
	for i := range data {
		if i > 400 && i < len(data)-8 { // of the content some bytes
			continue
		}
		bad := bytes.Clone(data)
		bad[i] ^= 4
		if _, err := states.ReadHeader(bytes.NewReader(bad), int64(len(bad))); err == nil {
			t.Errorf("a bit of byte %d is changed, and not seen", i)
		}
		if _, err := states.ReadHeader(bytes.NewReader(data[:i]), int64(i)); err == nil {
			t.Errorf("the first %d bytes are taken for all", i)
		}
	}
}
