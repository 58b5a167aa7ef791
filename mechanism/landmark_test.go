package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/rng"
)

// landmarkSubjects are those that go by way of a few tokens made of all.
func landmarkSubjects() (list []subject) {
	add := func(name, places string, average bool, o Options, whole func(p numbers) oracle.HeadMatrix) {
		label := name
		for _, key := range []string{"landmarks", "iterations", "conv", "factor", "length", "omega", "window", "overlap", "chunk", "rpe", "noise", "form", "sample", "scale"} {
			if v := o.Set[key]; v != "" {
				label += " " + key + "=" + v
			}
		}
		list = append(list, subject{label: label, name: name, o: o, whole: whole, places: places, average: average})
	}
	const zeros = "masked keys are zeros in the means, and keep their place"
	for _, x := range []struct {
		landmarks, iterations, width int
		places                       string
		set                          map[string]string
	}{
		{2, 6, 0, "", map[string]string{"landmarks": "2"}},
		{4, 1, 0, "", map[string]string{"landmarks": "4", "iterations": "1"}},
		{3, 2, 5, "a convolution goes by the places of keys", map[string]string{"landmarks": "3", "iterations": "2", "conv": "5"}},
		{2, 3, 0, zeros, map[string]string{"landmarks": "2", "iterations": "3", "form": "code"}},
	} {
		add("nystrom", x.places, false, Options{Set: x.set}, func(p numbers) oracle.HeadMatrix {
			return oracle.NewNystrom(x.landmarks, x.iterations, p["conv"], x.width, x.set["form"] == "code")
		})
	}
	for _, form := range []string{"paper", "code"} {
		add("informer", "", true, Options{Set: map[string]string{"factor": "1", "form": form}}, func(numbers) oracle.HeadMatrix {
			key := rng.New(0).Fold(0)
			return oracle.NewInformer(1, form == "code", func(token, sample int) float64 {
				return float64(float32(key.Fold(uint64(token)).Float64(uint64(sample))))
			})
		})
	}
	add("informer", "", true, Options{Length: 160, Set: map[string]string{"factor": "2", "sample": "stored"}}, func(p numbers) oracle.HeadMatrix {
		return oracle.NewInformer(2, false, func(token, sample int) float64 { return p["sample"][token*12+sample] })
	})
	for _, x := range []struct {
		set   map[string]string
		omega func(x float64) float64
		scale float64
	}{
		{map[string]string{"length": "4"}, nil, 0},
		{map[string]string{"length": "3", "scale": "2"}, nil, 2},
		{map[string]string{"length": "4", "form": "causal"}, oracle.EluPlusOne.F, 0},
		{map[string]string{"length": "2", "form": "causal", "omega": "softplus"}, func(x float64) float64 { return math.Log2(1 + math.Exp2(x)) }, 0},
		{map[string]string{"length": "3", "form": "causal", "omega": "elu", "scale": "0.5"}, func(x float64) float64 { return oracle.EluPlusOne.F(x) - 1 }, 0.5},
	} {
		length := int(x.set["length"][0] - '0')
		add("luna", "", x.omega == nil, Options{Width: 3, Set: x.set}, func(p numbers) oracle.HeadMatrix {
			return oracle.NewLuna(p["p"], length, x.omega, x.scale)
		})
	}
	for _, x := range []struct {
		book oracle.EVA
		set  map[string]string
	}{
		{oracle.EVA{Window: 4, Landmarks: 3}, map[string]string{"window": "4", "landmarks": "3"}},
		{oracle.EVA{Window: 3, Overlap: 2, Landmarks: 4}, map[string]string{"window": "3", "overlap": "2", "landmarks": "4", "rpe": "true", "noise": "normal"}},
		{oracle.EVA{Window: 2, Overlap: 1, Landmarks: 5, Zeros: true}, map[string]string{"window": "2", "overlap": "1", "landmarks": "5", "form": "code"}},
		{oracle.EVA{Window: 4, Chunk: 2}, map[string]string{"window": "4", "chunk": "2"}},
		{oracle.EVA{Window: 6, Overlap: 6, Chunk: 3, Zeros: true}, map[string]string{"window": "6", "overlap": "6", "chunk": "3", "rpe": "true", "form": "code"}},
	} {
		add("eva", "windows and chunks go by the places of keys", true, Options{Width: 3, Set: x.set}, func(p numbers) oracle.HeadMatrix {
			book := x.book
			book.MapQ = oracle.EVAMap{W: p["mq"], B: p["mq_bias"], Gain: p["lnq"], Bias: p["lnq_bias"]}
			book.MapK = oracle.EVAMap{W: p["mk"], B: p["mk_bias"], Gain: p["lnk"], Bias: p["lnk_bias"]}
			book.RPE, book.Noise = p["rpe"], p["noise"]
			return book.Weights
		})
		list[len(list)-1].recalls = x.book.Chunk > 0
	}
	return list
}
