package score

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/token"
)

// A snapshot is a framed file of two parts: a snapshot in JSON, and the snapshot of
// the session.
const (
	Magic   = "farfield score" // first bytes of the file of a scored text
	version = 1
)

// scorerSnapshot is the JSON part of a snapshot.
type scorerSnapshot struct {
	Weights string          `json:"weights_sha256"` // of the model
	Pending int32           `json:"pending"`        // token not yet in the session
	Note    json.RawMessage `json:"note"`           // note of the caller

	History []int32 `json:"history,omitempty"` // tokens in the session of a model with a window
	Dropped int64   `json:"dropped,omitempty"` // tokens before them
}

// readNote decodes the note of the caller into note, a pointer; nil skips it.
func (s *scorerSnapshot) readNote(note any) error {
	if note == nil {
		return nil
	}
	if err := json.Unmarshal(s.Note, note); err != nil {
		return fmt.Errorf("note: %w", err)
	}
	return nil
}

// maxHeaderBytes bounds the JSON part of a snapshot.
const maxHeaderBytes = 1 << 26

// ReadNote reads the snapshot in the size bytes of r without its model. It returns the
// SHA-256 of the model's weights and decodes the caller's note into note, a pointer or
// nil. It returns an error if the snapshot has another format or version, or does not
// match its SHA-256.
func ReadNote(r io.ReaderAt, size int64, note any) (weights string, err error) {
	text, err := framed.ReadFirst(r, size, Magic, version, maxHeaderBytes)
	if err != nil {
		return "", err
	}
	var s scorerSnapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return "", err
	}
	return s.Weights, s.readNote(note)
}

// AppendBinary appends a snapshot of the text to b, with a note of the caller as JSON. It
// returns an error if the note has no JSON, or after a loss that is not finite.
func (s *Scorer) AppendBinary(b []byte, note any) ([]byte, error) {
	if s.failure != nil {
		return b, s.failure
	}
	kept, err := json.Marshal(note)
	if err != nil {
		return b, err
	}
	if s.weightSum == "" {
		s.weightSum = s.model.WeightSum()
	}
	text, err := json.Marshal(scorerSnapshot{s.weightSum, s.pending, kept, s.history, s.dropped})
	if err != nil {
		return b, err
	}
	size := len(text) + int(s.session.SnapshotBytes())
	return framed.AppendParts(b, Magic, version, size, framed.Part(text), s.session.AppendBinary)
}

// RestoreScorer continues the text of a snapshot, to the same bits, and decodes its note
// into note, a pointer or nil. It returns an error if the snapshot is damaged, of another
// version, or of a model with other weights.
func RestoreScorer(data []byte, m *model.Model[float32], vocab *token.Vocabulary, note any) (*Scorer, error) {
	parts, err := framed.ReadParts(data, Magic, version, 2)
	if err != nil {
		return nil, err
	}
	var x scorerSnapshot
	if err := json.Unmarshal(parts[0], &x); err != nil {
		return nil, err
	}
	s, err := New(m, vocab)
	if err != nil {
		return nil, err
	}
	s.weightSum = m.WeightSum()
	if x.Weights != s.weightSum {
		return nil, fmt.Errorf("is of a model with other weights: their SHA-256 is %.12s…, this model's %.12s…", x.Weights, s.weightSum)
	}
	if x.Pending < 0 || int(x.Pending) >= vocab.Size() {
		return nil, fmt.Errorf("pending: token is %d, the vocabulary has %d", x.Pending, vocab.Size())
	}
	if s.session, err = m.RestoreSession(parts[1]); err != nil {
		return nil, err
	}
	if n := s.session.Batch(); n != 1 {
		return nil, fmt.Errorf("session: has %d sequences, a text is one", n)
	}
	s.pending = x.Pending
	if s.window > 0 {
		if len(x.History) != int(s.session.Tokens()) || x.Dropped < 0 {
			return nil, fmt.Errorf("history: has %d tokens behind %d, the session %d", len(x.History), x.Dropped, s.session.Tokens())
		}
		if len(x.History) >= s.window {
			return nil, fmt.Errorf("history: has %d tokens, a window of %d at most %d", len(x.History), s.window, s.window-1)
		}
		for i, id := range x.History {
			if id < 0 || int(id) >= m.Config().Vocab {
				return nil, fmt.Errorf("history: token %d is %d, the model has %d", i, id, m.Config().Vocab)
			}
		}
		s.history, s.dropped = x.History, x.Dropped
	}
	if err := x.readNote(note); err != nil {
		return nil, err
	}
	return s, nil
}
