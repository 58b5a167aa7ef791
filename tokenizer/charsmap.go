package tokenizer

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// charsmap is SentencePiece's map of normalization: a double array with the keys, and the
// normalized strings, each ended by a zero byte.
type charsmap struct {
	units   []uint32
	values  []byte
	longest int // bytes of a value
}

// newCharsmap reads precompiled_charsmap. It returns an error if its sizes do not agree,
// or a value is too long.
func newCharsmap(b []byte) (*charsmap, error) {
	if len(b) == 0 {
		return &charsmap{}, nil
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("%d bytes, at least 4 are needed", len(b))
	}
	size := int(binary.LittleEndian.Uint32(b))
	if size%4 != 0 || size > len(b)-4 {
		return nil, fmt.Errorf("its array has %d bytes of %d", size, len(b)-4)
	}
	m := &charsmap{units: make([]uint32, size/4), values: b[4+size:]}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	for value := range bytes.SplitSeq(m.values, []byte{0}) {
		m.longest = max(m.longest, len(value))
	}
	if m.longest > maxGrowth {
		return nil, fmt.Errorf("a value has %d bytes, at most %d are read", m.longest, maxGrowth)
	}
	return m, nil
}

// lookup returns the replacement and the length of a key at the beginning of b: the longest,
// or with first, the shortest. The length is 0 if there is none of at most maxKey bytes.
func (m *charsmap) lookup(b []byte, first bool) (value []byte, length int) {
	if len(m.units) == 0 {
		return nil, 0
	}
	unitOffset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	at := unitOffset(m.units[0])
	for i, c := range b[:min(len(b), maxKey)] {
		if at ^= uint32(c); int(at) >= len(m.units) || c == 0 {
			break
		}
		u := m.units[at]
		if u&(1<<31|0xFF) != uint32(c) {
			break
		}
		if at ^= unitOffset(u); int(at) >= len(m.units) {
			break
		}
		if u>>8&1 == 1 {
			from := int(m.units[at] & (1<<31 - 1))
			if from > len(m.values) {
				break
			}
			to := from
			for to < len(m.values) && m.values[to] != 0 {
				to++
			}
			value, length = m.values[from:to], i+1
			if first {
				break
			}
		}
	}
	return value, length
}
