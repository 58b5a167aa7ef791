//go:build !float64

package model

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/internal/framed"
)

func TestSessionsRunAtTheSameTime(t *testing.T) {
	c := tiny(Decoder, "taylorshift")
	c.Positions = Rotary
	m := made(t, c)
	b := batch(c, 3, 1, 30, false)
	want := step(t, session(t, m, 1), b, 0, b.N)
	var group sync.WaitGroup
	for range 3 {
		s := session(t, m, 1)
		group.Go(func() {
			var got []float32
			for n := range b.N {
				var err error
				if got, err = s.Step(t.Context(), b.Tokens[n:n+1], 1); err != nil {
					t.Error(err)
					return
				}
			}
			if !slices.Equal(got, want) {
				t.Error("a session depends on others")
			}
		})
	}
	group.Wait()
}

// A batch that the snapshot has no rows for is refused before its memory is taken.
func TestBatchBeyondTheSnapshotIsRefused(t *testing.T) {
	m := made(t, with(tiny(Decoder, "fastmax"), func(c *Config) { c.Conv = 3 }))
	data, err := session(t, m, 2).AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	end := len(data) - 4
	binary.LittleEndian.PutUint64(data[sessionHeader-16:], maxSize)
	binary.LittleEndian.PutUint32(data[end:], crc32.Checksum(data[:end], framed.Castagnoli))
	if _, err := m.RestoreSession(data); err == nil || !strings.Contains(err.Error(), "session: batch 16777216 with 384 bytes") {
		t.Errorf("error is %v", err)
	}
}
