package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/nn"
)

// headerFields returns the places of the numbers in the headers of the states in a snapshot, by
// their names.
func headerFields(data []byte) map[string][]int {
	fields := map[string][]int{"batch": {sessionHeader - 16}, "session tokens": {sessionHeader - 8}}
	for from := sessionHeader; ; {
		at := bytes.Index(data[from:], []byte(snapshot.Magic))
		if at < 0 {
			return fields
		}
		at += from + len(snapshot.Magic) + 4
		from = at
		fields["element"] = append(fields["element"], at)
		at += 8
		for range 3 {
			at += 8 + int(binary.LittleEndian.Uint64(data[at:]))
		}
		for _, name := range []string{"parameters", "B", "H", "Hkv", "D", "Dv", "chunk", "carry", "tokens"} {
			fields[name] = append(fields[name], at)
			at += 8
		}
	}
}

// A snapshot with valid checksums is refused, or its session goes on, whatever the headers of its
// states say.
func TestForgedHeadersAreRefusedOrWork(t *testing.T) {
	for name, c := range catalogue(t) {
		if c.Kind != Decoder {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := made(t, c)
			b := batch(c, 4, 2, 6, false)
			s := session(t, m, b.B)
			step(t, s, b, 0, 5)
			data, err := s.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			for field, places := range headerFields(data) {
				for _, at := range places {
					old := binary.LittleEndian.Uint64(data[at:])
					for _, value := range values(old) {
						if value == old {
							continue
						}
						forged := slices.Clone(data)
						binary.LittleEndian.PutUint64(forged[at:], value)
						checkForged(t, m, b, fmt.Sprintf("%s is %d, was %d", field, value, old), check.SealSession(forged))
					}
				}
			}
		})
	}
}

// values returns numbers in place of one of a header.
func values(old uint64) []uint64 {
	list := []uint64{0, old - 1, old + 1, 1 << 20, 1 << 53, math.MaxUint64}
	if suite.IsLong() {
		list = append(list, 1, 2*old, 4*old, math.MaxInt32)
	}
	return list
}

// checkForged checks that a snapshot is refused, or that its session takes a token.
func checkForged(t *testing.T, m *Model, b *Batch, what string, data []byte) {
	t.Helper()
	s, err := m.RestoreSession(data)
	if err != nil {
		return
	}
	if _, err := s.Step(t.Context(), make([]int32, s.Batch()), 1); err != nil {
		t.Errorf("%s: the session is restored, and its step fails: %v", what, err)
	}
}

// A whole state of the right mechanism is refused by a layer with another shape.
func TestStatesOfOtherShapesAreRefused(t *testing.T) {
	for name, c := range catalogue(t) {
		if c.Kind != Decoder {
			continue
		}
		m := made(t, c)
		layer, ok := m.main.blocks[0].mixer.(*nn.Attention)
		if !ok {
			continue
		}
		for _, x := range []struct {
			field string
			shape attention.Shape
		}{
			{"B is", attention.Shape{B: 3, H: layer.H, Hkv: layer.Hkv, D: layer.D, Dv: layer.D}},
			{"H is", attention.Shape{B: 2, H: 2 * layer.H, Hkv: layer.Hkv, D: layer.D, Dv: layer.D}},
			{"D is", attention.Shape{B: 2, H: layer.H, Hkv: layer.Hkv, D: 2 * layer.D, Dv: layer.D}},
			{"Dv is", attention.Shape{B: 2, H: layer.H, Hkv: layer.Hkv, D: layer.D, Dv: 2 * layer.D}},
		} {
			state, err := layer.Mechanism.NewState(x.shape)
			if err != nil {
				continue // the mechanism has one shape
			}
			data, err := state.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := layer.RestoreState(2, data); err == nil || !strings.Contains(err.Error(), x.field) {
				t.Errorf("%s: error is %v, needs %q", name, err, x.field)
			}
		}
	}
}
