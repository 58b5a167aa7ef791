package sessions

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// chunkTokens is the number of tokens of a node of the trie of prefixes.
const chunkTokens = 128

// prefixKey identifies a sequence of tokens from its root on.
type prefixKey [sha256.Size]byte

// rootKey returns the key of the empty sequence of a model.
func rootKey(identity string) prefixKey {
	return sha256.Sum256([]byte("farfield prefix\x00" + identity))
}

// importKey returns the key of the tokens before an imported snapshot. They are unknown,
// so no other sequence has it.
func importKey(data []byte) prefixKey {
	sum := sha256.Sum256(data)
	return sha256.Sum256(append([]byte("farfield import\x00"), sum[:]...))
}

// extend returns the key of the sequence of k followed by ids, at most a chunk.
func (k prefixKey) extend(ids []int32) prefixKey {
	b := make([]byte, 0, len(k)+4*chunkTokens)
	b = append(b, k[:]...)
	for _, t := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return sha256.Sum256(b)
}

// prefix identifies the tokens that a state has read: the node of the trie after the last
// whole chunk, and the tokens since.
type prefix struct {
	chain prefixKey
	rest  []int32 // fewer than chunkTokens
}

// add appends ids to the sequence.
func (p *prefix) add(ids []int32) {
	for len(ids) > 0 {
		n := min(len(ids), chunkTokens-len(p.rest))
		p.rest = append(p.rest, ids[:n]...)
		ids = ids[n:]
		if len(p.rest) == chunkTokens {
			p.chain, p.rest = p.chain.extend(p.rest), p.rest[:0]
		}
	}
}

// room returns the number of tokens to the next border of chunks.
func (p *prefix) room() int { return chunkTokens - len(p.rest) }

// key returns the key of the whole sequence.
func (p *prefix) key() prefixKey {
	if len(p.rest) == 0 {
		return p.chain
	}
	return p.chain.extend(p.rest)
}

// clone returns a copy with memory of its own.
func (p prefix) clone() prefix { return prefix{p.chain, slices.Clone(p.rest)} }

// chainKeys returns the keys of ids after 0, 1, … whole chunks from root on.
func chainKeys(root prefixKey, ids []int32) []prefixKey {
	keys := []prefixKey{root}
	for i := chunkTokens; i <= len(ids); i += chunkTokens {
		keys = append(keys, keys[len(keys)-1].extend(ids[i-chunkTokens:i]))
	}
	return keys
}

// Distances between snapshots. A snapshot may take bytesPerToken bytes for each token that
// it saves a restart from reading. So models of fixed state have one every few hundred
// tokens, and the distances of growing caches grow.
const (
	bytesPerToken = 64 << 10
	logDistance   = 256 // least number of tokens that a session reads again from the log
)

// restartDistance returns the number of tokens after which a session of that many tokens
// has its next snapshot.
func restartDistance(tokens, bytes int64) int64 {
	return max(logDistance, min(bytes/bytesPerToken, tokens/2))
}

// reuseDistance returns the number of tokens between two snapshots of a prompt.
func reuseDistance(tokens, bytes int64) int64 {
	return max(chunkTokens, tokens/8, min(bytes/bytesPerToken, tokens/2))
}
