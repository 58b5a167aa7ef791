package nn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// headerFields returns where the fields of the header of a snapshot of a state begin. Fields
// of text begin with their length.
func headerFields(data []byte) map[string]int {
	at := 8
	fields := map[string]int{"bytes of an element": at}
	at += 8
	for _, name := range []string{"kind of state", "mechanism", "setting"} {
		fields[name] = at
		at += 8 + int(binary.LittleEndian.Uint64(data[at:]))
	}
	for _, name := range []string{"checksum of the parameters", "B", "H", "Hkv", "D", "Dv", "chunk", "carry", "tokens"} {
		fields[name] = at
		at += 8
	}
	return fields
}

// must returns x, or panics with err.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// A snapshot with right checksums whose header differs in one field from the states of the
// layer is refused with the name and both values of the field.
func TestEachFieldOfASnapshotIsChecked(t *testing.T) {
	const tokens = 40
	for name, m := range map[string]attention.Mechanism{
		"sums":   must(mechanism.New("fastmax", mechanism.Options{})),
		"window": must(mechanism.New("fastmax", mechanism.Options{Set: map[string]string{"window": "8"}})),
		"cache":  must(mechanism.New("softmax", mechanism.Options{})),
		"linear": must(mechanism.New("linear", mechanism.Options{})),
	} {
		for _, decays := range []bool{false, true} {
			layer := &Attention{H: 2, Hkv: 2, D: 4, Mechanism: m}
			if decays {
				layer.Decay = new(Decay)
			}
			snap := func(chunk int, decay bool) []byte {
				s := layer.stateShape(1)
				if chunk > 0 {
					s.Chunk = chunk
				}
				state := must(m.NewState(s))
				x := tensor.Split(make([]float, tokens*8), 1, tokens, 8, 0, 2, 4)
				c := attention.Call{Q: x, K: x, V: x, Causal: true}
				if decay {
					c.LogG = tensor.Split(make([]float, tokens*2), 1, tokens, 2, 0, 2, 1)
				}
				if err := state.Step(tensor.Split(make([]float, tokens*8), 1, tokens, 8, 0, 2, 4), &c); err != nil {
					t.Fatal(err)
				}
				return must(state.AppendBinary(nil))
			}
			data := snap(0, decays)
			if _, err := layer.RestoreState(1, data); err != nil {
				t.Errorf("%s, decays %t: its own snapshot: %v", name, decays, err)
			}
			// The tokens are no property of a layer. Model.RestoreSession compares them.
			for field, at := range headerFields(data) {
				if field == "tokens" {
					continue
				}
				forged := bytes.Clone(data)
				old := binary.LittleEndian.Uint64(forged[at:])
				switch field {
				case "kind of state", "mechanism", "setting":
					if old == 0 {
						continue
					}
					forged[at+8]++
				default:
					binary.LittleEndian.PutUint64(forged[at:], old+1)
				}
				_, err := layer.RestoreState(1, check.SealSnapshot(forged))
				if err == nil || !strings.Contains(err.Error(), "snapshot: "+field+" is ") || !strings.Contains(err.Error(), ", needs ") {
					t.Errorf("%s, decays %t: %s may be another: %v", name, decays, field, err)
				}
			}
			// The rest fits to these headers. A cache has no chunks.
			for _, x := range []struct {
				data []byte
				want string
			}{
				{snap(0, !decays), "kind of state is "},
				{snap(24, decays), fmt.Sprintf("chunk is 24, needs %d", binary.LittleEndian.Uint64(data[headerFields(data)["chunk"]:]))},
			} {
				if name == "cache" && strings.HasPrefix(x.want, "chunk") {
					continue
				}
				if _, err := layer.RestoreState(1, x.data); err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%s, decays %t: error is %v, needs %q", name, decays, err, x.want)
				}
			}
		}
	}
}
