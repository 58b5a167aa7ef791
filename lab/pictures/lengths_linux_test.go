package pictures

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var write = flag.Bool("write", false, "measure and write lengths.json")

// With -write lengths.json is measured: the least processor time of at least three rounds, in which
// the mechanisms take turns, on one thread. Processor time does not count what other programs take.
// Without, the states are compared with those of the file.
func TestLengths(t *testing.T) {
	const d, cells, longestSoftmax = 32, 256, 32768
	threads := par.Threads()
	par.SetThreads(1)
	defer par.SetThreads(threads)
	var kept lengths
	if err := json.Unmarshal(measured, &kept); err != nil && !*write {
		t.Fatal(err)
	}
	list := lengths{Machine: bench.DescribeCPU().Model + ", one thread"}
	seconds := func() float64 {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return float64(at.Nano()) / 1e9
	}
	mechanisms := map[string]attention.Mechanism{}
	for _, m := range lengthMechanisms {
		o := mechanism.Options{Heads: 1, KeyHeads: 1, Width: d}
		if m.name == "multipole" {
			o.Set = map[string]string{"cells": strconv.Itoa(cells)}
		}
		made, err := mechanism.New(m.name, o)
		if err != nil {
			t.Fatal(err)
		}
		mechanisms[m.name] = made
	}
	book := mechanisms["multipole"].Constants().All()[0].Data
	for n := 256; n <= 65536; n *= 2 {
		draw := func(seed uint64, scale float32) tensor.Heads {
			x := tensor.NewHeads(1, 1, n, d)
			for i := range x.Data {
				x.Data[i] = scale * float32(rng.New(seed).Normal(uint64(i)))
			}
			return x
		}
		k := draw(2, 0.5)
		for j := range n { // so that all cells have keys
			for a, y := range book[rng.New(4).Intn(uint64(j), cells)*d:][:d] {
				k.Data[j*d+a] += y
			}
		}
		call, out := &attention.Call{Q: draw(1, 1), K: k, V: draw(3, 1), Causal: true}, tensor.NewHeads(1, 1, n, d)
		row := length{N: n, Ms: map[string]float64{}, Bytes: map[string]float64{}}
		for _, m := range lengthMechanisms {
			s, err := mechanisms[m.name].NewState(attention.Shape{B: 1, H: 1, Hkv: 1, N: 1, M: n, D: d, Dv: d, Causal: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Absorb(&attention.Call{K: call.K, V: call.V}); err != nil {
				t.Fatal(err)
			}
			row.Bytes[m.name] = float64(s.Bytes())
		}
		begin := seconds()
		for round := 0; *write && (round < 3 || seconds() < begin+0.3); round++ {
			for _, m := range lengthMechanisms {
				if m.name == "softmax" && n > longestSoftmax {
					continue
				}
				at := seconds()
				if err := mechanisms[m.name].Forward(out, call, nil); err != nil {
					t.Fatal(err)
				}
				if ms := math.Round((seconds()-at)*1e7) / 1e4; row.Ms[m.name] == 0 || ms < row.Ms[m.name] {
					row.Ms[m.name] = ms
				}
			}
		}
		list.Rows = append(list.Rows, row)
	}
	if *write {
		text, err := json.MarshalIndent(list, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("lengths.json", append(text, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, row := range list.Rows {
		for _, m := range lengthMechanisms {
			if i >= len(kept.Rows) || kept.Rows[i].Bytes[m.name] != row.Bytes[m.name] {
				t.Errorf("the state of %s after %d tokens has %g bytes, lengths.json differs (go test ./pictures -run TestLengths -write)", m.name, row.N, row.Bytes[m.name])
			}
		}
	}
}
