package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/framed"
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
		want, got := calltest.Poisoned(2, 6, n, 3), calltest.Poisoned(2, 6, n, 3)
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

// seal replaces the checksum of a snapshot by the right one.
func seal(data []byte) []byte {
	body := data[:len(data)-4]
	return binary.LittleEndian.AppendUint32(slices.Clone(body), crc32.Checksum(body, framed.Castagnoli))
}

// snapshots returns small snapshots, of either kind, of compensated sums and with
// decay, and what restores them.
func snapshots(t testing.TB) (data [][]byte, restore []func([]byte) (attention.State, error)) {
	tau := &param.Param{Name: "tau", Shape: []int{2}, Data: []float{1, 2}, Grad: make([]float, 2)}
	softmax := attention.Spec{Name: "softmax", Setting: "a", Exp: true, Positive: true}
	fastmax := attention.Spec{Name: "fastmax", Setting: "a", Norm: attention.Standard, Tau: tau, Coef: []float64{1, 1, 0.5}, Positive: true}
	for i, s := range []attention.Spec{softmax, fastmax, fastmax, softmax, fastmax} {
		e, err := newMechanism(s)
		if err != nil {
			t.Fatal(err)
		}
		c := calltest.NewCall(calltest.Problems()["causal, decay"])
		c.Q.H, c.K.H, c.V.H, c.LogG.H = 2, 1, 1, 1
		if i < 3 {
			c.LogG = tensor.Heads{}
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

func TestSnapshotDamage(t *testing.T) {
	data, restore := snapshots(t)
	for k, b := range data {
		for n := range b {
			if _, err := restore[k](b[:n]); !errors.Is(err, fault.ErrDamaged) || errors.Is(err, fault.ErrMismatch) {
				t.Fatalf("%d of %d bytes: %v, needs fault.ErrDamaged", n, len(b), err)
			}
			bad := slices.Clone(b)
			bad[n] ^= 0x10
			kind := fault.ErrDamaged
			if n >= 4 && n < 8 { // the version
				kind = fault.ErrMismatch
			}
			if _, err := restore[k](bad); !errors.Is(err, kind) {
				t.Fatalf("a flipped bit in byte %d of %d: %v, needs %v", n, len(b), err, kind)
			}
			// With the checksum made to fit, other numbers may pass: nothing panics.
			st, err := restore[k](seal(bad))
			if (st == nil) == (err == nil) {
				t.Fatalf("byte %d changed: state %v with error %v", n, st, err)
			}
			if err != nil && errors.Is(err, fault.ErrDamaged) == errors.Is(err, fault.ErrMismatch) {
				t.Fatalf("byte %d changed: error %v is not one of fault.ErrDamaged and fault.ErrMismatch", n, err)
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
	fastmax := func(change func(s *attention.Spec)) func([]byte) (attention.State, error) {
		s := attention.Spec{
			Name: "fastmax", Setting: "a", Norm: attention.Standard, Coef: []float64{1, 1, 0.5}, Positive: true,
			Tau: &param.Param{Name: "tau", Shape: []int{2}, Data: []float{1, 2}, Grad: make([]float, 2)},
		}
		change(&s)
		return mustNew(t, s).RestoreState
	}
	version := slices.Clone(cacheBytes)
	version[4] = 9
	other := slices.Clone(cacheBytes)
	other[8] ^= 4 ^ 8 // bytes of an element
	for _, c := range []struct {
		data    []byte
		restore func([]byte) (attention.State, error)
		want    string
	}{
		{sumsBytes, fastmax(func(s *attention.Spec) {}), ""},
		{sumsBytes, restore[0], `kind of state is "sums", needs "keys and values"`},
		{cacheBytes, restore[1], `kind of state is "keys and values", needs "sums"`},
		{sumsBytes, fastmax(func(s *attention.Spec) { s.Name = "other" }), `mechanism is "fastmax", needs "other"`},
		{sumsBytes, fastmax(func(s *attention.Spec) { s.Setting = "b" }), `setting is "a", needs "b"`},
		{sumsBytes, fastmax(func(s *attention.Spec) { s.Tau.Data[1] = 3 }), "checksum of the parameters is "},
		{version, restore[0], "version is 9, this program reads 2"},
		{[]byte("FFXX00000000"), restore[0], `begins with "FFXX", not "FFST"`},
		{seal(other), restore[0], fmt.Sprintf("elements have %d bytes, this mechanism computes with %d", check.Pick(8, 4), check.Pick(4, 8))},
	} {
		_, err := c.restore(c.data)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if isDamage := strings.HasPrefix(c.want, "begins"); errors.Is(err, fault.ErrDamaged) != isDamage || errors.Is(err, fault.ErrMismatch) != (c.want != "" && !isDamage) {
			t.Errorf("error %v is of another kind", err)
		}
	}
}

// A state that is saved can be restored.
func TestSavedShapesAreRestored(t *testing.T) {
	for _, s := range []attention.Spec{{Name: "softmax", Exp: true, Positive: true}, {Name: "power", Coef: []float64{0, 1}}} {
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
		if n := check.AllocatedBytes(func() { _, headerErr = states.ReadHeader(bytes.NewReader(sealed), int64(len(sealed))) }); n > 4<<20 {
			t.Errorf("the header of %d bytes is read in %d bytes of memory", len(b), n)
		}
		for _, r := range restore {
			var st attention.State
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
