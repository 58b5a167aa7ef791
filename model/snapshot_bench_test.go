//go:build !float64

package model

import (
	"testing"
)

// BenchmarkStates measures clones and snapshots of sessions, in bytes of the state.
func BenchmarkStates(b *testing.B) {
	far := smolLM()
	far.Mechanism, far.Order = "fastmax", 2
	far.Set = map[string]string{"window": "64", "scale": "1/sqrt(D)", "tau": "1"}
	small := with(far, func(c *Config) {
		c.Vocab, c.Layers, c.Width, c.Heads, c.KVHeads, c.Hidden = 256, 4, 128, 4, 0, 512
	})
	cache := smolLM()
	cache.Vocab, far.Vocab = 256, 256
	for _, x := range []struct {
		name   string
		c      Config
		tokens int
	}{{"near-far", small, 256}, {"near-far 135M", far, 256}, {"softmax 135M", cache, 2048}} {
		b.Run(x.name, func(b *testing.B) {
			m := filled(b, x.c)
			g := group(b, m)
			s, err := g.NewSession(1)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.Step(b.Context(), tokensOf(x.c, 1, x.tokens), x.tokens); err != nil {
				b.Fatal(err)
			}
			var data []byte
			if data, err = s.AppendBinary(nil); err != nil {
				b.Fatal(err)
			}
			b.Logf("%d bytes, snapshot %d, capacity %d", s.Bytes(), len(data), cap(data))
			b.Run("Clone", func(b *testing.B) {
				b.SetBytes(s.Bytes())
				for b.Loop() {
					s.Clone()
				}
			})
			b.Run("AppendBinary", func(b *testing.B) {
				b.SetBytes(s.Bytes())
				for b.Loop() {
					if data, err = s.AppendBinary(nil); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("RestoreSession", func(b *testing.B) {
				b.SetBytes(s.Bytes())
				for b.Loop() {
					if _, err := g.RestoreSession(data); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
