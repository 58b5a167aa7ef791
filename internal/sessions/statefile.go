package sessions

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/model"
)

// A saved state is a framed file of two parts: a stateHeader in JSON, and the snapshot of
// the session. Files of the store and exported sessions have the same format.
var stateFormat = framed.Format{Name: "state", Magic: "farfield session state", Version: 1, Sum: framed.SHA256}

// maxHeaderBytes bounds the JSON of a header.
const maxHeaderBytes = 1 << 24

// stateHeader says which tokens a state has read.
type stateHeader struct {
	Identity string  `json:"identity"`
	Tokens   int64   `json:"tokens"`            // of the state
	Chain    string  `json:"chain,omitempty"`   // prefix.chain; "": the tokens are unknown
	Rest     []int32 `json:"rest,omitempty"`    // prefix.rest
	Pending  []int32 `json:"pending,omitempty"` // tokens after the state
}

// savedState is the content of a saved state.
type savedState struct {
	state   *model.Session
	prefix  prefix
	pending []int32
}

// coder makes states of a model, and reads and writes them.
type coder struct {
	identity string
	vocab    int
	group    *model.SessionGroup
	empty    *model.Session
	root     prefixKey // of the empty sequence
}

// newCoder returns the coder of a model. It returns an error if the model has no sessions.
func newCoder(m *model.Model, identity string) (c coder, err error) {
	c = coder{identity: identity, vocab: m.Config().Vocab, root: rootKey(identity)}
	if c.group, err = m.NewSessionGroup(); err != nil {
		return c, err
	}
	c.empty, err = c.group.NewSession(1)
	return c, err
}

// rootOf returns the key of the empty sequence of an owner.
func (c *coder) rootOf(owner string) prefixKey {
	if owner == "" {
		return c.root
	}
	return sha256.Sum256(append(c.root[:], owner...))
}

// newState returns the state of the empty sequence of an owner.
func (c *coder) newState(owner string) *savedState {
	return &savedState{state: c.empty.Clone(), prefix: prefix{chain: c.rootOf(owner)}}
}

// encode returns a saved state. p is nil where the prefix stays unknown.
func (c *coder) encode(state *model.Session, p *prefix, pending []int32) ([]byte, error) {
	h := stateHeader{Identity: c.identity, Tokens: state.Tokens(), Pending: pending}
	if p != nil {
		h.Chain, h.Rest = hex.EncodeToString(p.chain[:]), p.rest
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	size := len(text) + int(state.SnapshotBytes())
	return stateFormat.AppendParts(nil, size, framed.Part(text), state.AppendBinary)
}

// describe returns the precision of an identity and the beginning of its hash.
func describe(identity string) string {
	precision, hash, has := strings.Cut(identity, ":")
	if !has {
		precision, hash = "f32", identity
	}
	return fmt.Sprintf("%.8s %.12s", precision, hash)
}

// decode reads a saved state. It returns an error if data is damaged, and ErrForeign
// if the state is of another model, tokenizer or precision.
func (c *coder) decode(data []byte) (s savedState, err error) {
	parts, err := stateFormat.ReadParts(data, 2)
	if err != nil {
		return s, err
	}
	if len(parts[0]) > maxHeaderBytes {
		return s, fmt.Errorf("its header has %d bytes, %d are possible", len(parts[0]), maxHeaderBytes)
	}
	var h stateHeader
	if err := json.Unmarshal(parts[0], &h); err != nil {
		return s, fmt.Errorf("its header: %w", err)
	}
	if h.Identity != c.identity {
		return s, fmt.Errorf("%w: it is of %s, the model is %s", ErrForeign, describe(h.Identity), describe(c.identity))
	}
	chain, err := hex.DecodeString(h.Chain)
	if err != nil || len(chain) != 0 && len(chain) != len(s.prefix.chain) || len(h.Rest) >= chunkTokens {
		return s, fmt.Errorf("its prefix %.80q and %d tokens is not possible", h.Chain, len(h.Rest))
	}
	copy(s.prefix.chain[:], chain)
	s.prefix.rest, s.pending = h.Rest, h.Pending
	if s.state, err = c.group.RestoreSession(parts[1]); err != nil {
		return s, err
	}
	if n := s.state.Tokens(); n != h.Tokens || s.state.Batch() != 1 {
		return s, fmt.Errorf("its state has %d tokens of %d sequences, its header %d of 1", n, s.state.Batch(), h.Tokens)
	}
	return s, checkIDs(s.pending, c.vocab)
}
