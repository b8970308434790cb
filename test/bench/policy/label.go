package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	fewPolicies = 100
	labelRounds = 3
	labelFlips  = 200 // in a round, for each number of policies
	labelEvery  = 40 * time.Millisecond
	labelP99    = 20 * time.Millisecond
	labelFactor = 2.0
	labelLimit  = 30 * time.Second // for one change
)

// measureLabel changes the label of one pod after the other, with 100 and with 1,000 policies, alternately. A
// change makes the pod a peer of one policy, or no longer. The measured time is from the event until the
// address set of the policy has changed. A real northd computes meanwhile.
func measureLabel(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	l, err := b.newLabels(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var few, many []time.Duration
	recomputes := 0
	for n := range labelRounds {
		if err := l.policies(ctx, fewPolicies); err != nil {
			return nil, err
		}
		if _, err := l.round(ctx, &few); err != nil {
			return nil, err
		}
		if err := l.policies(ctx, largePolicies); err != nil {
			return nil, err
		}
		again, err := l.round(ctx, &many)
		if err != nil {
			return nil, err
		}
		recomputes += again
		b.Say("labels changed, round %d of %d", n+1, labelRounds)
	}
	slices.Sort(few)
	slices.Sort(many)
	p99, base := figures.Percentile(many, 99), figures.Percentile(few, 99)
	ratio := float64(p99) / float64(base)
	const name = "label of a peer changes, 10,000 pods, 1,000 policies: "
	return []figures.Figure{
		figures.Unbound(name+"to address set in NB, p50", figures.Short(figures.Percentile(many, 50))),
		figures.AtMost(name+"to address set in NB, p99", p99, labelP99),
		{
			Name: name + "p99 beside 100 policies", Measured: fmt.Sprintf("%.2f of it (%s)", ratio, figures.Short(base)),
			Bound: fmt.Sprintf("at most %g", labelFactor), Within: ratio <= labelFactor,
		},
		{Name: name + "northd computes everything again", Measured: fmt.Sprintf("%d times", recomputes), Bound: "never", Within: recomputes == 0},
	}, nil
}

// labels is a large cluster with a bridge and an OVN without hosts.
type labels struct {
	*cluster
	lab    *ovnhost.Lab
	bridge *process.Bridge
	watch  *nbwatch.Watch
	sets   chan string // the name of the first address set that has changed since it was emptied
	flips  int
	count  int // of policies
}

func (b *bench) newLabels(ctx context.Context) (_ *labels, err error) {
	l := &labels{sets: make(chan string, 1), count: largePolicies}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.cluster, err = b.newCluster(large()); err != nil {
		return nil, err
	}
	if l.lab, err = b.newLab(ctx); err != nil {
		return nil, err
	}
	// northd pauses until the rows are written, so that it computes them once.
	if err := l.lab.Northd.Stop(); err != nil {
		return nil, err
	}
	b.Say("10,000 pods and 1,000 policies: choosing and writing")
	if l.bridge, err = b.start(ctx, l.cluster, l.lab.NB.Remote); err != nil {
		return nil, err
	}
	b.Say("northd computes")
	if err := l.lab.Northd.Cont(); err != nil {
		return nil, err
	}
	l.watch, err = nbwatch.StartSets(ctx, l.lab.NB.Remote, l.note)
	return l, err
}

// note notes that an address set has changed. Changes of policies change many.
func (l *labels) note(set string) {
	select {
	case l.sets <- set:
	default:
	}
}

// newLab starts an OVN with hosts.
func (b *bench) newLab(ctx context.Context, hosts ...string) (*ovnhost.Lab, error) {
	return ovnhost.Start(ctx, ovnhost.Config{Prefix: "bench" + strconv.Itoa(os.Getpid()), Hosts: hosts})
}

func (l *labels) close() error {
	var errs []error
	if l.watch != nil {
		l.watch.Stop()
	}
	if l.bridge != nil {
		errs = append(errs, l.bridge.Stop())
	}
	if l.lab != nil {
		errs = append(errs, l.lab.Close())
	}
	if l.cluster != nil {
		errs = append(errs, l.api.Close())
	}
	return errors.Join(errs...)
}

// policies changes the number of policies, and waits until northd has computed everything.
func (l *labels) policies(ctx context.Context, n int) error {
	if n == l.count {
		return nil
	}
	l.count = n
	if err := l.cluster.policies.Resize(n); err != nil {
		return err
	}
	return l.settle(ctx)
}

// settle waits until the rows of the last policy are written or deleted, and northd has computed all changes.
func (l *labels) settle(ctx context.Context) error {
	last := fmt.Sprintf("ace ingress:policy-%d:0:ipv4", largePolicies-1)
	if err := awaitACL(ctx, l.lab, last, l.count == largePolicies); err != nil {
		return err
	}
	if _, err := l.bridge.AwaitSync(ctx, largePods); err != nil {
		return err
	}
	// northd computes again when it gets its own writes back. It has finished that when it has translated two
	// later changes.
	for range 2 {
		if err := l.flip(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitACL waits until the northbound database has the ACL of a role, or has it no longer.
func awaitACL(ctx context.Context, lab *ovnhost.Lab, role string, exists bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	err := ovnhost.Poll(ctx, func(ctx context.Context) error {
		out, err := lab.NBCtl(ctx, "--bare", "--columns=_uuid", "find", "ACL", fmt.Sprintf(`external_ids:"coe-bridge/role"=%q`, role))
		if err == nil && (strings.TrimSpace(out) != "") != exists {
			err = fmt.Errorf("its existence should be %t", exists)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the ACL %s: %w", role, err)
	}
	return nil
}

// settleLimit bounds the time in which OVN does all its work.
const settleLimit = 5 * time.Minute

// round changes labels at a steady pace. It returns how often northd has computed everything again meanwhile.
func (l *labels) round(ctx context.Context, took *[]time.Duration) (recomputes int, err error) {
	before, err := l.lab.Recomputes(ctx)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(labelEvery)
	defer tick.Stop()
	for range labelFlips {
		one, err := l.change(ctx)
		if err != nil {
			return 0, err
		}
		*took = append(*took, one.took)
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
	if err := l.flip(ctx); err != nil {
		return 0, err
	}
	after, err := l.lab.Recomputes(ctx)
	return after - before, err
}

// change is a change of a label that has reached an address set.
type change struct {
	set  string
	took time.Duration
}

// change changes the label of the next pod: every second change takes back the one before. The changes are spread
// over the policies that exist always, as far as they allow only pods of their namespace.
func (l *labels) change(ctx context.Context) (c change, err error) {
	pair := l.flips / 2
	k := pair / largeNamespaces % (fewPolicies/largeNamespaces - 1)
	pod := pair%largeNamespaces + largeNamespaces*(10+pair/largeNamespaces)
	if l.flips++; l.flips%2 == 1 {
		labels := maps.Clone(l.labels(pod))
		labels["role"] = client(k)
		l.relabeled.Store(pod, labels)
	} else {
		l.relabeled.Delete(pod)
	}
	ctx, cancel := context.WithTimeout(ctx, labelLimit)
	defer cancel()
	select {
	case <-l.sets:
	default:
	}
	begun := time.Now()
	if err := l.pods.Modify(pod); err != nil {
		return c, err
	}
	select {
	case set := <-l.sets:
		return change{set, time.Since(begun)}, nil
	case <-ctx.Done():
		return c, fmt.Errorf("wait for the address set of pod %d: %w", pod, ctx.Err())
	}
}

// flip makes a change, and waits until northd has translated it.
func (l *labels) flip(ctx context.Context) error {
	c, err := l.change(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return ovnhost.Poll(ctx, func(ctx context.Context) error {
		want, err := l.lab.NBCtl(ctx, "--bare", "--columns=addresses", "find", "Address_Set", "name="+c.set)
		if err != nil {
			return err
		}
		have, err := l.lab.SBCtl(ctx, "--bare", "--columns=addresses", "find", "Address_Set", "name="+c.set)
		if err == nil && have != want {
			err = fmt.Errorf("northd has not translated the address set %s", c.set)
		}
		return err
	})
}
