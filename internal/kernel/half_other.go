//go:build !amd64 || purego

package kernel

func halfTable(t *Table[float32]) *HalfTable {
	return &HalfTable{table: t, widen: widenGo, widenPairs: widenPairsGo, pair: pairGo}
}
