package engine

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

var write = flag.Bool("write", false, "write the snapshots of testdata")

func TestCacheSnapshot(t *testing.T) {
	const n = headtask.KeyBlock + 40
	c := stateCall(n, 5, 3, 0)
	for _, cut := range []int{0, 1, 30, headtask.KeyBlock, headtask.KeyBlock + 7, n} {
		e, st := softmaxState(t, c)
		want, got := calltest.Poisoned[float32](2, 6, n, 3), calltest.Poisoned[float32](2, 6, n, 3)
		steps(t, st, want, c, 0, cut)
		data, err := st.AppendBinary([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		restored, err := e.RestoreState(data[len("before"):])
		if err != nil {
			t.Fatalf("%d tokens: %v", cut, err)
		}
		if restored.Tokens() != int64(cut) {
			t.Errorf("%d tokens restored, want %d", restored.Tokens(), cut)
		}
		again, err := restored.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, data[len("before"):]) {
			t.Errorf("%d tokens: saved again, other bytes", cut)
		}
		copy(got.Data, want.Data)
		steps(t, st, want, c, cut, n)
		steps(t, restored, got, c, cut, n)
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%d tokens: the restored state goes on with other bits", cut)
		}
	}
}

func TestReadSnapshotHeader(t *testing.T) {
	const n = headtask.KeyBlock + 40
	c := stateCall(n, 5, 3, 0)
	_, st := softmaxState(t, c)
	steps(t, st, calltest.Poisoned[float32](2, 6, n, 3), c, 0, n)
	data, err := st.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := attention.ReadSnapshotHeader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	want := attention.SnapshotHeader{Version: snapshot.Version, Kind: states.CacheKind, Mechanism: h.Mechanism, Setting: h.Setting, Element: 4,
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
		if _, err := attention.ReadSnapshotHeader(bytes.NewReader(bad), int64(len(bad))); err == nil {
			t.Errorf("a bit of byte %d is changed, and not seen", i)
		}
		if _, err := attention.ReadSnapshotHeader(bytes.NewReader(data[:i]), int64(i)); err == nil {
			t.Errorf("the first %d bytes are taken for all", i)
		}
	}
}

// seal replaces the checksum of a snapshot by the right one.
func seal(data []byte) []byte {
	body := data[:len(data)-4]
	return binary.LittleEndian.AppendUint32(slices.Clone(body), crc32.Checksum(body, framed.Castagnoli))
}

// snapshots returns small snapshots, of either kind, of compensated sums and with
// decay, and what restores them.
func snapshots(t testing.TB) (data [][]byte, restore []func([]byte) (attention.State[float32], error)) {
	tau := &param.Param[float32]{Name: "tau", Shape: []int{2}, Data: []float32{1, 2}, Grad: make([]float32, 2)}
	softmax := attention.Spec[float32]{Name: "softmax", Setting: "a", Exp: true, Positive: true}
	fastmax := attention.Spec[float32]{Name: "fastmax", Setting: "a", Norm: attention.Standard, Tau: tau, Coef: []float64{1, 1, 0.5}, Positive: true}
	for i, s := range []attention.Spec[float32]{softmax, fastmax, fastmax, softmax, fastmax} {
		e, err := newMechanism(s)
		if err != nil {
			t.Fatal(err)
		}
		c := calltest.NewCall[float32](calltest.Problems()["causal, decay"])
		c.Q.H, c.K.H, c.V.H, c.LogG.H = 2, 1, 1, 1
		if i < 3 {
			c.LogG = tensor.Heads[float32]{}
		}
		shape := c.Shape()
		shape.Chunk = 4
		if i == 2 {
			shape.Carry = attention.Compensated
		}
		st, err := e.NewState(shape)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Absorb(c); err != nil {
			t.Fatal(err)
		}
		b, err := st.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		data, restore = append(data, b), append(restore, e.RestoreState)
	}
	return data, restore
}

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
			c := calltest.NewCall[float32](calltest.Problems()["causal, decay"])
			c.Q.H, c.K.H, c.V.H, c.LogG.H = 2, 1, 1, 1
			if i < 3 {
				c.LogG = tensor.Heads[float32]{}
			}
			o := calltest.Poisoned[float32](c.Q.B, c.Q.H, c.Q.N, c.V.D)
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

func TestSnapshotDamage(t *testing.T) {
	data, restore := snapshots(t)
	for k, b := range data {
		for n := range b {
			if _, err := restore[k](b[:n]); err == nil {
				t.Fatalf("%d of %d bytes are accepted", n, len(b))
			}
			bad := slices.Clone(b)
			bad[n] ^= 0x10
			if _, err := restore[k](bad); err == nil {
				t.Fatalf("a flipped bit in byte %d of %d is accepted", n, len(b))
			}
			// With the checksum made to fit, other numbers may pass: nothing panics.
			if st, err := restore[k](seal(bad)); (st == nil) == (err == nil) {
				t.Fatalf("byte %d changed: state %v with error %v", n, st, err)
			}
		}
		if _, err := restore[k](seal(append(slices.Clone(b), 0))); err == nil || !strings.Contains(err.Error(), "1 bytes too many") {
			t.Errorf("error %v about a byte too many", err)
		}
	}
}

func TestSnapshotOfAnother(t *testing.T) {
	data, restore := snapshots(t)
	cacheBytes, sumsBytes := data[0], data[1]
	fastmax := func(change func(s *attention.Spec[float32])) func([]byte) (attention.State[float32], error) {
		s := attention.Spec[float32]{
			Name: "fastmax", Setting: "a", Norm: attention.Standard, Coef: []float64{1, 1, 0.5}, Positive: true,
			Tau: &param.Param[float32]{Name: "tau", Shape: []int{2}, Data: []float32{1, 2}, Grad: make([]float32, 2)},
		}
		change(&s)
		return mustNew(t, s).RestoreState
	}
	double, err := newMechanism(attention.Spec[float64]{Name: "softmax", Setting: "a", Exp: true, Positive: true})
	if err != nil {
		t.Fatal(err)
	}
	version := slices.Clone(cacheBytes)
	version[4] = 9
	for _, c := range []struct {
		data    []byte
		restore func([]byte) (attention.State[float32], error)
		want    string
	}{
		{sumsBytes, fastmax(func(s *attention.Spec[float32]) {}), ""},
		{sumsBytes, restore[0], `kind of state is "sums", needs "keys and values"`},
		{cacheBytes, restore[1], `kind of state is "keys and values", needs "sums"`},
		{sumsBytes, fastmax(func(s *attention.Spec[float32]) { s.Name = "other" }), `mechanism is "fastmax", needs "other"`},
		{sumsBytes, fastmax(func(s *attention.Spec[float32]) { s.Setting = "b" }), `setting is "a", needs "b"`},
		{sumsBytes, fastmax(func(s *attention.Spec[float32]) { s.Tau.Data[1] = 3 }), "checksum of the parameters is "},
		{version, restore[0], "version is 9, this program reads 2"},
		{[]byte("FFXX00000000"), restore[0], `begins with "FFXX", not "FFST"`},
		{cacheBytes, func(b []byte) (attention.State[float32], error) {
			_, err := double.RestoreState(b)
			return nil, err
		}, "elements have 4 bytes, this mechanism computes with 8"},
	} {
		_, err := c.restore(c.data)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// A state that is saved can be restored.
func TestSavedShapesAreRestored(t *testing.T) {
	for _, s := range []attention.Spec[float32]{{Name: "softmax", Exp: true, Positive: true}, {Name: "power", Coef: []float64{0, 1}}} {
		for _, x := range []struct {
			shape attention.Shape
			want  string
		}{
			{attention.Shape{B: 1, H: 1, Hkv: 1, D: 1, Dv: 1<<14 + 1, Chunk: 1}, "<nil>"},
			{attention.Shape{B: 1, H: 1, Hkv: 1, D: 1<<14 + 1, Dv: 1, Chunk: 1}, "<nil>"},
			{attention.Shape{B: 0, H: 1, Hkv: 1, D: 1, Dv: 1 << 28, Chunk: 1}, "<nil>"},
			{attention.Shape{B: 1, H: 24000, Hkv: 1, D: 1, Dv: 1, Chunk: 1}, "snapshot: B=1 H=24000: "},
		} {
			e := mustNew(t, s)
			st, err := e.NewState(x.shape)
			if err != nil {
				t.Fatal(err)
			}
			data, err := st.AppendBinary(nil)
			if !strings.HasPrefix(fmt.Sprint(err), x.want) {
				t.Errorf("%s of %+v: error %v, want %s", s.Name, x.shape, err, x.want)
			}
			if err != nil {
				continue
			}
			if _, err := e.RestoreState(data); err != nil {
				t.Errorf("%s of %+v is saved and refused: %v", s.Name, x.shape, err)
			}
		}
	}
}

// No snapshot, however forged, may panic or take memory that it does not have.
func FuzzRestoreState(f *testing.F) {
	data, restore := snapshots(f)
	for _, b := range data {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		var headerErr error
		sealed := seal(b)
		if n := check.AllocatedBytes(func() { _, headerErr = attention.ReadSnapshotHeader(bytes.NewReader(sealed), int64(len(sealed))) }); n > 4<<20 {
			t.Errorf("the header of %d bytes is read in %d bytes of memory", len(b), n)
		}
		for _, r := range restore {
			var st attention.State[float32]
			var err error
			if n := check.AllocatedBytes(func() { st, err = r(seal(b)) }); n > 16<<20+64*int64(len(b)) {
				t.Errorf("a snapshot of %d bytes takes %d bytes of memory", len(b), n)
			}
			if (st == nil) == (err == nil) {
				t.Fatalf("state %v with error %v", st, err)
			}
			if err == nil {
				st.Clone().Reset()
				if headerErr != nil {
					t.Errorf("a snapshot that is restored has a header with error %v", headerErr)
				}
			}
		}
	})
}
