package comm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/fault"
)

// numbers returns n numbers of a rank, of all magnitudes.
func numbers[T comm.Number](rank, n int) []T {
	r := rand.New(rand.NewPCG(uint64(rank), 1))
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.NormFloat64()) * T(uint64(1)<<r.IntN(30))
	}
	return x
}

// Sums add the ranks in their order, for every length of the array.
func testSums[T comm.Number](t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 7} {
		for _, n := range []int{0, 1, 5, 1001} {
			sum, before := make([]float64, n), make([][]float64, size)
			after := make([][]float64, size)
			for r := range size {
				before[r] = slices.Clone(sum)
				for i, x := range numbers[T](r, n) {
					sum[i] += float64(x)
				}
			}
			late := make([]float64, n)
			for r := size - 1; r >= 0; r-- {
				after[r] = slices.Clone(late)
				for i, x := range numbers[T](r, n) {
					late[i] += float64(x)
				}
			}
			err := comm.RunLocal(size, func(c *comm.Comm) error {
				for _, x := range []struct {
					name string
					do   func(x []T) error
					want []float64
				}{
					{"sum", func(x []T) error { return comm.AllReduce(c, x) }, sum},
					{"prefix", func(x []T) error { return comm.ExclusiveScan(c, x, nil) }, before[c.Rank()]},
					{"suffix", func(x []T) error { return comm.ReverseScan(c, x, nil) }, after[c.Rank()]},
				} {
					got := numbers[T](c.Rank(), n)
					if err := x.do(got); err != nil {
						return err
					}
					for i := range got {
						if got[i] != T(x.want[i]) {
							return fmt.Errorf("%s: element %d of %d is %v, not %v", x.name, i, n, got[i], x.want[i])
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d ranks: %v", size, err)
			}
		}
	}
}

func TestSumsAreTakenInTheOrderOfRanks(t *testing.T) {
	t.Run("float32", testSums[float32])
	t.Run("float64", testSums[float64])
}

// What a rank leaves of the sum before it goes by the stretch of the element.
func TestPrefixLeavesStretches(t *testing.T) {
	const size, stretches, length = 4, 3, 5
	left := make([][]float64, size)
	for r := range left {
		for s := range stretches {
			left[r] = append(left[r], 1/float64(1+r+2*s))
		}
	}
	err := comm.RunLocal(size, func(c *comm.Comm) error {
		for _, way := range []struct {
			name  string
			do    func(*comm.Comm, []float64, [][]float64) error
			ranks []int // that come before
		}{
			{"prefix", comm.ExclusiveScan[float64], []int{0, 1, 2, 3}[:c.Rank()]},
			{"suffix", comm.ReverseScan[float64], []int{3, 2, 1, 0}[:3-c.Rank()]},
		} {
			x := numbers[float64](c.Rank(), stretches*length)
			if err := way.do(c, x, left); err != nil {
				return err
			}
			for i := range x {
				want := 0.0
				for _, r := range way.ranks {
					want = want*left[r][i/length] + numbers[float64](r, len(x))[i]
				}
				if x[i] != want {
					return fmt.Errorf("%s: element %d is %v, not %v", way.name, i, x[i], want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// An array beyond a piece is summed like a short one, and what is sent is counted.
func TestLongArraysAreSummedInPieces(t *testing.T) {
	if testing.Short() {
		t.Skip("sums 128 MiB")
	}
	const n = 1<<23 + 1000 // of 8 bytes, more than one piece
	err := comm.RunLocal(2, func(c *comm.Comm) error {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i * (1 + c.Rank()))
		}
		if err := comm.AllReduce(c, x); err != nil {
			return err
		}
		for i := range x {
			if x[i] != float64(3*i) {
				return fmt.Errorf("element %d is %v", i, x[i])
			}
		}
		if sent := c.SentBytes(); sent != 8*n {
			return fmt.Errorf("%d bytes were sent, not %d", sent, 8*n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGatherAndBroadcastDeliverEveryPart(t *testing.T) {
	err := comm.RunLocal(3, func(c *comm.Comm) error {
		list, err := comm.AllGather(c, numbers[float32](c.Rank(), 2*c.Rank()))
		if err != nil {
			return err
		}
		for r, x := range list {
			if !slices.Equal(x, numbers[float32](r, 2*r)) {
				return fmt.Errorf("rank %d gave %v", r, x)
			}
		}
		x := numbers[float64](c.Rank(), 9)
		if err := comm.Broadcast(c, x, 2); err != nil {
			return err
		}
		if !slices.Equal(x, numbers[float64](2, 9)) {
			return fmt.Errorf("broadcast gave %v", x)
		}
		if want := map[int]int64{0: 2 * 8, 1: 2 * (8 + 8), 2: 2*(8+16) + 2*72}[c.Rank()]; c.SentBytes() != want {
			return fmt.Errorf("%d bytes were sent, not %d", c.SentBytes(), want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// All ranks get the error of the lowest one that has one.
func TestErrorReachesAllRanks(t *testing.T) {
	for _, text := range []string{"no file", "", "a\x00b: 3:\xff\n", strings.Repeat("long", 1<<20)} {
		told := make([]error, 3)
		own := errors.New(text)
		err := comm.RunLocal(3, func(c *comm.Comm) error {
			var err error
			if c.Rank() > 0 {
				err = own
			}
			told[c.Rank()] = comm.ShareError(c, err)
			return comm.ShareError(c, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(told[1], own) {
			t.Errorf("rank 1 got %v", told[1])
		}
		for r, err := range told {
			var shared *comm.RankError
			if !errors.As(err, &shared) || shared.Rank != 1 || err.Error() != "rank 1: "+text {
				t.Errorf("rank %d got %.99v", r, err)
			}
		}
	}
}

// The error of another rank has Go's names of fields, and in a command those of files, as its own has.
func TestErrorOfAnotherRankNamesItsFields(t *testing.T) {
	type config struct {
		Batch int `json:"batch_size"`
	}
	err := comm.RunLocal(2, func(c *comm.Comm) error {
		var own error
		if c.Rank() == 1 {
			own = fault.Fieldf[config]("{Batch}: \x00%q", "{Batch}")
		}
		err := comm.ShareError(c, own)
		if err == nil || err.Error() != "rank 1: Batch: \x00\"{Batch}\"" || fault.InFile(err).Error() != "rank 1: batch_size: \x00\"{Batch}\"" {
			return fmt.Errorf("%v, in a command %w", err, fault.InFile(err))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDifferingFieldIsNamed(t *testing.T) {
	for _, x := range []struct {
		change int // the rank that has another model; -1: none
		want   string
	}{{-1, ""}, {2, `rank 2: model: is "b", rank 0 has model "a"`}} {
		told := make([]error, 3)
		err := comm.RunLocal(3, func(c *comm.Comm) error {
			f := []comm.Field{{Name: "width", Value: "64"}, {Name: "model", Value: "a"}}
			if c.Rank() == x.change {
				f[1].Value = "b"
			}
			told[c.Rank()] = comm.CheckAgreement(c, f...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range told {
			if err == nil && x.want == "" {
				continue
			}
			if err == nil || err.Error() != x.want {
				t.Errorf("rank %d: error %v, want %q", r, err, x.want)
			}
		}
	}
}

// No rank waits for one that does something else, or nothing more.
func TestRanksThatDiffer(t *testing.T) {
	for want, f := range map[string]func(c *comm.Comm) error{
		"this one at barrier": func(c *comm.Comm) error {
			if c.Rank() == 0 {
				return c.Barrier()
			}
			return comm.Broadcast(c, make([]byte, 1), 0)
		},
		"expected": func(c *comm.Comm) error { return comm.AllReduce(c, make([]float32, 8+c.Rank())) },
		"left: rank 0 has 3 stretches, rank 0 has 3, x has 8 elements": func(c *comm.Comm) error {
			return comm.ExclusiveScan(c, make([]float32, 8), [][]float64{make([]float64, 3), make([]float64, 3)})
		},
		"root is 2": func(c *comm.Comm) error { return comm.Broadcast(c, make([]byte, 1), 2) },
		"ended": func(c *comm.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			return c.Barrier()
		},
		"panic: at will": func(c *comm.Comm) error {
			if c.Rank() == 1 {
				panic("at will")
			}
			return c.Barrier()
		},
	} {
		err := comm.RunLocal(2, f)
		if err == nil || !strings.Contains(err.Error(), want) && !(want == "this one at barrier" && strings.Contains(err.Error(), "this one at broadcast")) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

func TestErrorsNameRankAndOperation(t *testing.T) {
	for _, n := range []int{0, -1} {
		if err := comm.RunLocal(n, nil); err == nil || err.Error() != fmt.Sprintf("ranks: %d, needs 1 or more", n) {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
	told := make([]error, 2)
	comm.RunLocal(2, func(c *comm.Comm) error {
		if c.Rank() == 0 {
			return errors.New("the disk is full")
		}
		told[1] = comm.AllReduce(c, make([]float32, 3))
		return nil
	})
	if err := told[1]; err == nil || err.Error() != "rank 1 of 2: sum: rank 0: the disk is full" {
		t.Errorf("error %v", err)
	}
}

// BenchmarkSum is of ranks within a process: what adding and copying take, without a
// way between machines.
func BenchmarkSum(b *testing.B) {
	for _, size := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("%d ranks", size), func(b *testing.B) {
			const n = 1 << 16
			b.SetBytes(4 * n)
			err := comm.RunLocal(size, func(c *comm.Comm) error {
				x := make([]float32, n)
				for range b.N {
					if err := comm.AllReduce(c, x); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

func ExampleAllReduce() {
	err := comm.RunLocal(3, func(c *comm.Comm) error {
		x := []float32{1, float32(c.Rank())}
		if err := comm.AllReduce(c, x); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [3 3]
}

// A rank whose goroutine ends, as by FailNow of a test, ends the others that wait for it.
func TestGoexitEndsOtherRanks(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		done <- comm.RunLocal(2, func(c *comm.Comm) error {
			if c.Rank() == 1 {
				runtime.Goexit()
			}
			return c.Barrier()
		})
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "goroutine has ended") {
			t.Errorf("error %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("rank 0 waits for ever")
	}
}
