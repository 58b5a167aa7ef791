package mechanism

import (
	"github.com/farfield-ml/farfield/internal/oracle"
)

// patternSubjects are mechanisms in which visibility depends on positions.
func patternSubjects() []subject {
	list := []subject{}
	add := func(name string, whole func(p numbers) oracle.HeadMatrix, settings ...string) {
		s := subject{label: name, name: name, o: Options{Set: map[string]string{}}, whole: whole, average: true,
			places: "what a query sees goes by the places of keys"}
		for i := 0; i < len(settings); i += 2 {
			s.o.Set[settings[i]] = settings[i+1]
			s.label += " " + settings[i] + "=" + settings[i+1]
		}
		list = append(list, s)
	}
	fixed := func(f oracle.HeadMatrix) func(numbers) oracle.HeadMatrix {
		return func(numbers) oracle.HeadMatrix { return f }
	}
	add("local", fixed(oracle.NewLocal(5, 0)), "window", "5")
	add("local", fixed(oracle.NewLocal(40, 2)), "window", "40", "scale", "2")
	add("local", fixed(oracle.LocalSpan(3, 0)), "span", "3")
	list[len(list)-1].aligned = true
	add("local", fixed(oracle.LocalBlocks(4, 1, 1, false, 0)), "window", "4", "form", "block")
	add("local", fixed(oracle.LocalBlocks(3, 2, 0, true, 0)), "window", "3", "form", "block", "back", "2", "forward", "0", "exact", "true")
	add("local", fixed(oracle.CappedLocal(5, 3, 0.5)), "window", "5", "scale", "3", "cap", "0.5")
	add("local", fixed(oracle.CappedLocal(40, 1, 2)), "window", "40", "scale", "1", "cap", "2")
	add("softmax", fixed(oracle.CappedSoftmax(2, 1.5)), "scale", "2", "cap", "1.5")
	list[len(list)-1].places, list[len(list)-1].ownSums = "", true
	add("longformer", fixed(oracle.NewLongformer(4, []int{0, 6, 7}, 0)), "window", "4", "global", "6,0,7")
	add("longformer", fixed(oracle.NewLongformer(7, nil, 2)), "window", "7", "global", "none", "scale", "2")
	add("longnet", fixed(oracle.LongNet([]int{4, 8, 64}, []int{1, 2, 3}, false, 0)), "segments", "4,8,64", "ratios", "1,2,3")
	add("longnet", fixed(oracle.LongNet([]int{5, 16}, []int{1, 2}, true, 2)), "segments", "5,16", "ratios", "1,2", "form", "code", "scale", "2")
	list[len(list)-1].frozen = "what mixes the branches counts as constant, as in the program; TestLongNetHasNoKeysOfZeros"
	add("sparse-strided", fixed(oracle.SparseStrided(3, 0)), "stride", "3")
	add("sparse-strided", fixed(oracle.SparseStrided(12, 2)), "stride", "12", "scale", "2")
	add("sparse-fixed", fixed(oracle.SparseFixed(4, 2, 0)), "stride", "4", "c", "2")
	add("sparse-fixed", fixed(oracle.SparseFixed(11, 1, 0.5)), "stride", "11", "c", "1", "scale", "0.5")
	// Ramps end between tokens: the gradient of z divides the roundings of a query by the weight
	// of its only key.
	add("adaptive-span", func(p numbers) oracle.HeadMatrix { return oracle.AdaptiveSpan(p["span"], 3.5, 9, 0) }, "span", "4", "ramp", "3.5", "limit", "9")
	add("adaptive-span", func(p numbers) oracle.HeadMatrix { return oracle.AdaptiveSpan(p["span"], 2.5, 9, 0.5) }, "span", "4", "ramp", "2.5", "limit", "9", "scale", "0.5")
	for _, x := range []struct {
		memory, width int
		scale         float64
		settings      []string
	}{{6, widest, 0, []string{"memory", "6"}}, {4, 3, 2, []string{"memory", "4", "scale", "2"}}} {
		add("transformer-xl", func(p numbers) oracle.HeadMatrix {
			return oracle.TransformerXL(p["r"], p["u"], p["vb"], len(p["u"])/x.width, x.memory, x.width, x.scale)
		}, x.settings...)
		list[len(list)-1].o.Width = x.width
	}
	return list
}

// widest is the width of parameters, for rows of all widths that laws have.
const widest = 24
