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
//
// # Settings
//
// Options.Order is the degree, Options.Set has the other settings as texts. Their defaults are
//
//	softmax            scale=1/sqrt(D) cap=none
//	fastmax            Order=2 scale=1 bounded=false tau=none window=0 join=denominator gamma=1
//	taylorshift        Order=2 tau=1 output_norm=false window=0 join=denominator gamma=1
//	linear             eps=1e-6 map=elu+1 window=0 join=denominator gamma=1
//	performer          kernel=softmax features=D·ln(D) projection=orthogonal norms=chi
//	                   scale=1/sqrt(D) feature_eps=0 eps=0 form=paper redraw=0 seed=0
//	rfa                kernel=gaussian features=D tau=1 norm=unit eps=0 gate=false form=paper seed=0
//	based              eps=0 window=0 join=denominator gamma=1
//	power              Order=2 scale=1/sqrt(D) eps=0 window=0 join=denominator gamma=1
//	sata               Order=3 window=0 join=denominator gamma=1
//	retention          gamma=1-2^(-5-h) scale=1/sqrt(D)
//	polynomial         norm=none scale=1/sqrt(D) coef=1,1,0.5 tau=none eps=0 output_norm=false
//	                   window=0 join=denominator gamma=1
//	linformer          rank=256 share=heads columns=reached seed=0
//	fourier            R=1 channels=false eps=0 scaled=false
//	local              window=128 span=0 form=window back=1 forward=1 exact=false scale=1/sqrt(D)
//	                   cap=none
//	longformer         window=512 global=0 scale=1/sqrt(D)
//	longnet            segments=2048,4096,8192,16384,32768 ratios=1,2,4,6,12 form=paper
//	                   scale=1/sqrt(D)
//	sparse-strided     stride=128 scale=1/sqrt(D)
//	sparse-fixed       stride=128 c=8 scale=1/sqrt(D)
//	adaptive-span      span=32 ramp=32 limit=1024 penalty=1e-6 scale=1/sqrt(D)
//	transformer-xl     memory=512 scale=1/sqrt(D)
//	nystrom            landmarks=64 iterations=6 conv=0 form=paper seed=0
//	informer           factor=5 form=paper sample=drawn seed=0
//	luna               length=16 form=encoder omega=elu+1 scale=1/sqrt(D) seed=0
//	eva                window=32 overlap=0 landmarks=49 chunk=none rpe=false noise=none form=paper
//	                   seed=0
//	clustered          clusters=100 bits=63 iterations=10 bias=true scale=1/sqrt(D) seed=0
//	improved-clustered topk=32 clusters=100 bits=63 iterations=10 bias=true scale=1/sqrt(D) seed=0
//	reformer           bucket=64 rounds=4 buckets=64 form=paper repeats=once self=alone masks=absent
//	                   scale=1/sqrt(D) seed=0
//	scatterbrain       support=local window=128 cluster=64 features=D·ln(D) projection=orthogonal
//	                   scale=1/sqrt(D) seed=0
//	exact-topk         topk=32 scale=1/sqrt(D)
//	primal             rank=20 data=independent tokens=10·rank eta=0.1 square=true loss=paper
//	                   trace=made seed=0
//	multipole          Order=0 (to 2) cells=256 block=32 window=16 sinks=1 ends=1 tilt=false adapt=0
//	                   centres=codebook tol=0.05 size=0 least=1024 span=512 scale=1/sqrt(D) seed=0
//
// Those of one name mean much the same: scale multiplies scores, eps is added to the sum of the
// weights, window is the number of tokens with exact weights, seed draws random numbers. Row.Settings
// says what each means for its row. The error of New for a value that is not allowed says which are,
// such as its range.
package mechanism
