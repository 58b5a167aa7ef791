// Package mechanism is the catalogue of attention functions. New
// makes a mechanism by name, Lookup returns its row with settings and sources, and
// Names lists all names.
//
//	name           weight of a key, before division by the sum      normalisation         form
//	softmax        exp(q·k/√D)                                      none                  direct
//	fastmax        T_p(q̂·k̂), T_p(s) = Σ_{l≤p} s^l/l!                mean 0, deviation 1   direct, linear
//	taylorshift    T_2(τ q̂·k̂), τ learned for each head              length 1              direct, linear
//	linear         φ(q)·φ(k), φ = elu + 1; eps of 1e-6              none                  direct, linear
//	performer      φ(q)·φ(k), random features of exp(q·k/√D)        none                  direct, linear
//	rfa            φ(q̂)·φ(k̂), sines of random products              length 1              direct, linear
//	based          T_2(q·k/√D)                                      none                  direct, linear
//	power          (q·k/√D)^p, p even                               none                  direct, linear
//	sata           T_p(q·k/√D)                                      none                  direct, linear
//	retention      γ_h^(i-j)·q·k/√D, not divided                    none                  direct, linear
//	polynomial     Σ c_l s^l, s = scale·q̂·k̂, any c_l                as set                direct, linear
//	linformer      softmax(q·(EᵀK)ᵀ/√D)·Fᵀ, E and F learned         none                  whole heads
//	fourier        Π_d sinc(R(q_d-k_d))⁴, R learned                 none                  whole heads
//	local          exp(q·k/√D), in a window                         none                  whole heads
//	longformer     exp(q·k/√D), in a window and with global tokens  none                  whole heads
//	longnet        exp(q·k/√D), in dilated segments                 none                  whole heads
//	sparse-…       exp(q·k/√D), by strides or blocks                none                  whole heads
//	adaptive-span  exp(q·k/√D), fading beyond a learned span        none                  whole heads
//	transformer-xl exp of q·k and of q·r_(i-j), r learned           none                  whole heads
//	nystrom        softmax through landmarks and a pseudo-inverse   none                  whole heads
//	informer       softmax for some queries, a mean for the others  none                  whole heads
//	luna           softmax over tokens packed by learned queries    none                  whole heads
//	eva            softmax over a window and summaries of chunks    none                  whole heads
//	clustered      softmax of means of clusters of queries          none                  whole heads
//	improved-…     clustered, with exact weights of the top keys    none                  whole heads
//	reformer       exp(q·k/√D), for tokens near in angle            k = q/|q|             whole heads
//	scatterbrain   exp(q·k/√D) for near keys, φ(q)·φ(k) for others  none                  whole heads
//	exact-topk     exp(q·k/√D) for the k largest scores             none                  whole heads
//	primal         no weights: projections of q̂ and k̂               length 1              whole heads
//	multipole      exp(q·k/√D), far keys expanded about cell means  none                  whole heads
//
// Outputs are divided by the sum of the weights plus the setting eps, which is 0 unless the
// table says otherwise. "Mean 0, deviation 1" and "length 1" are what each query and key is
// scaled to before its score is computed. docs/mechanisms.md compares what each mechanism is
// good for.
package mechanism
