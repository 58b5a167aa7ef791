package headtask

import "testing"

// The chunks of a scan and the queries after them have every key and every query once, and each
// query in a chunk stands at its key.
func TestChunksHaveEveryTokenOnce(t *testing.T) {
	const c = 4
	for n := range 10 {
		for m := range 10 {
			for _, u := range []Geometry{
				{N: n, M: m, Causal: true, Offset: m - n},
				{N: n, M: m, Causal: true, Offset: m + 3 - n}, // padded keys
				{N: n, M: m},
			} {
				ends := []int{u.M}
				if u.Causal {
					ends = append(ends, u.PositionCount())
				}
				for _, end := range ends {
					for before := range c {
						for _, closesFull := range []bool{false, true} {
							s := Scan{scanGeometry: scanGeometry{ChunkSize: c}, openTokens: openTokens{Count: before}}
							last := s.lastChunk(end, closesFull)
							keys, queries := 0, min(max(-u.queryOffset(), 0), n) // those before all keys
							for pos := -before; pos <= last; pos += c {
								x := u.chunkAt(pos, c, end)
								if x.j0 != keys || x.i0 != queries || x.j1 < x.j0 || x.i1 < x.i0 {
									t.Fatalf("N=%d M=%d offset %d, %d before, end %d: chunk %d is %+v after %d keys and %d queries", n, m, u.queryOffset(), before, end, pos, x, keys, queries)
								}
								if x.i0 < x.i1 && x.diag != x.i0+u.queryOffset()-pos {
									t.Errorf("chunk %+v: its first query sees keys up to %d", x, x.diag)
								}
								if held := x.j1 - x.j0; x.j1-pos > c || pos < 0 && held > c-before {
									t.Errorf("chunk %+v has more than %d tokens", x, c)
								}
								keys, queries = x.j1, x.i1
							}
							if closesFull != (last == end) && (before+end)%c == 0 && before+end > 0 {
								t.Errorf("%d tokens before, end %d: the last chunk begins at %d", before, end, last)
							}
							if trailing := u.trailingQuery(end); keys != m || queries != trailing {
								t.Errorf("N=%d M=%d offset %d, %d before, end %d: chunks have %d keys and %d queries, %d trail", n, m, u.queryOffset(), before, end, keys, queries, n-trailing)
							}
						}
					}
				}
			}
		}
	}
}
