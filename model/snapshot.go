package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/snapshot"
)

// A snapshot of a session is, in little-endian order:
//
//	sessionMagic
//	uint32   version
//	[32]byte SHA-256 of the configuration and the element type
//	uint64   batch
//	uint64   tokens of each sequence
//	for each layer: uint64 length, snapshot of its state
//	for each convolution: its rows before the next token
//	uint32   for each token, sequence by sequence, with LongScaling up to OriginalContext tokens
//	uint32   CRC-32C of everything before
const (
	sessionMagic  = "farfield session"
	sessionHeader = len(sessionMagic) + 4 + sha256.Size + 8 + 8
)

var sessionFormat = framed.Format{Name: "session", Magic: sessionMagic, Version: 1, Sum: framed.CRC32C}

// digest returns the digest of configuration and element type that a snapshot records.
func (f sessionMaker) digest() ([sha256.Size]byte, error) {
	text, err := json.Marshal(f.model.config)
	return sha256.Sum256(append(text, elementType()...)), err
}

// AppendBinary appends a snapshot of the session, without the weights, for
// RestoreSession. It returns ErrSessionFailed after a step that failed, and an error if a
// state has no snapshot.
func (s *Session) AppendBinary(b []byte) ([]byte, error) {
	if err := s.checkFailure(); err != nil {
		return b, err
	}
	id, err := sessionMaker{model: s.model}.digest()
	if err != nil {
		return b, err
	}
	start := len(b)
	le := binary.LittleEndian
	b = sessionFormat.Begin(slices.Grow(b, int(s.SnapshotBytes())))
	b = append(b, id[:]...)
	b = le.AppendUint64(b, uint64(s.batch))
	b = le.AppendUint64(b, uint64(s.tokens))
	for i, state := range s.states {
		at := len(b)
		b = le.AppendUint64(b, 0)
		if b, err = state.AppendBinary(b); err != nil {
			return b[:start], fmt.Errorf("session: layer %d: %w", i, err)
		}
		le.PutUint64(b[at:], uint64(len(b)-at-8))
	}
	for _, p := range s.convRows {
		b = snapshot.AppendElements(b, p)
	}
	for _, x := range s.past {
		for _, id := range x {
			b = le.AppendUint32(b, uint32(id))
		}
	}
	b = sessionFormat.End(b, start)
	if s.frozen.hasFixedStates && s.model.main.turns.scaling == nil {
		s.frozen.snapshot.Store(&snapshotSize{s.stateBytes(), int64(len(b) - start)})
	}
	return b, nil
}

// snapshotSize is the size of a snapshot, and the bytes of its states.
type snapshotSize struct{ states, snapshot int64 }

// SnapshotBytes returns the number of bytes that AppendBinary appends. It is an estimate if
// states grow with the tokens or no snapshot was made before.
func (s *Session) SnapshotBytes() int64 {
	n := s.stateBytes()
	if x := s.frozen.snapshot.Load(); x != nil && x.states == n {
		return x.snapshot
	}
	return n + s.pastBytes() + int64((len(s.states)+1)*sessionHeader) // states have more than their snapshots
}

// RestoreSession returns the session of the snapshot data. It returns an error if data
// is damaged or of another version, or if the model has another configuration or
// element type.
func (m *Model) RestoreSession(data []byte) (*Session, error) {
	return sessionMaker{model: m}.restore(data)
}

// restore returns the session of a snapshot.
func (f sessionMaker) restore(data []byte) (*Session, error) {
	content, err := sessionFormat.Content(data)
	if err != nil {
		return nil, err
	}
	if n := sessionHeader - int(sessionFormat.Start()); len(content) < n {
		return nil, fmt.Errorf("session: truncated: its header has %d bytes, needs %d", len(content), n)
	}
	id, err := f.digest()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(content[:len(id)], id[:]) {
		return nil, fault.Mark(fault.ErrMismatch, errors.New("session: the snapshot is of a model of another configuration or element type"))
	}
	le, end := binary.LittleEndian, len(data)-sessionFormat.Sum.Size
	batch, tokens := le.Uint64(data[sessionHeader-16:]), le.Uint64(data[sessionHeader-8:])
	if batch > maxSize || int64(tokens) < 0 {
		return nil, fmt.Errorf("session: batch %d of %d tokens is not possible", batch, tokens)
	}
	if err := f.model.config.checkSessions(Decoder); err != nil {
		return nil, err
	}
	if size := f.convBytes(); size > 0 && batch > uint64(end-sessionHeader)/size {
		return nil, fmt.Errorf("session: batch %d with %d bytes of convolutions each, the snapshot has %d bytes", batch, size, end-sessionHeader)
	}
	if f.model.main.turns.scaling != nil && batch > uint64(end-sessionHeader)/8 { // each has a state
		return nil, fmt.Errorf("session: batch %d, the snapshot has %d bytes", batch, end-sessionHeader)
	}
	s, err := f.create(int(batch))
	if err != nil {
		return nil, err
	}
	s.tokens = int64(tokens)
	if err := s.restoreStates(data[sessionHeader:end]); err != nil {
		return nil, err
	}
	return s, nil
}

// convBytes returns the bytes of the convolutions' rows before the next token of a sequence.
func (f sessionMaker) convBytes() (n uint64) {
	var z float
	for i := range f.model.main.blocks {
		if c := f.model.main.blocks[i].conv; c != nil {
			n += uint64(c.PastSize()) * uint64(unsafe.Sizeof(z))
		}
	}
	return n
}

// restoreStates reads the states of all layers from data.
func (s *Session) restoreStates(data []byte) error {
	for i := range s.model.main.blocks {
		x := s.model.main.blocks[i].mixer
		if x == nil {
			continue
		}
		layer := len(s.states)
		if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
			return fmt.Errorf("session: layer %d: the snapshot ends within it", layer)
		}
		n := int(binary.LittleEndian.Uint64(data))
		state, err := x.RestoreState(s.batch, data[8:][:n])
		if err != nil {
			return fmt.Errorf("session: layer %d: %w", layer, err)
		}
		if state.Tokens() != s.tokens {
			return fmt.Errorf("session: layer %d has %d tokens, the session %d", layer, state.Tokens(), s.tokens)
		}
		s.states = append(s.states, state)
		data = data[8+n:]
	}
	for i, p := range s.convRows {
		var ok bool
		if data, ok = snapshot.CutElements(p, data); !ok {
			return fmt.Errorf("session: convolution %d: the snapshot ends within it", i)
		}
	}
	data, err := s.restorePast(data)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		return fmt.Errorf("session: %d bytes follow the last of %d layers", len(data), len(s.states))
	}
	return nil
}

// restorePast reads the tokens of the session from data, if it keeps them, and returns what follows.
func (s *Session) restorePast(data []byte) ([]byte, error) {
	turns := &s.model.main.turns
	if s.past == nil {
		return data, nil
	}
	if class := turns.lengthClass(s.tokens); class > 0 {
		s.start(turns, class)
		return data, nil
	}
	if s.tokens > int64(len(data)/4/s.batch) {
		return nil, fmt.Errorf("session: the snapshot ends within its %d tokens", s.tokens)
	}
	for b := range s.past {
		for range s.tokens {
			id := binary.LittleEndian.Uint32(data)
			if int64(id) >= int64(s.model.config.Vocab) {
				return nil, fmt.Errorf("session: token %d, the vocabulary has %d", id, s.model.config.Vocab)
			}
			s.past[b], data = append(s.past[b], int32(id)), data[4:]
		}
	}
	return data, nil
}
