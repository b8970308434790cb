package report

import (
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// The delay before an annotation is restored again: it doubles with each change by others, and
// is reset after quiet.
const (
	minRestore = time.Second
	maxRestore = time.Minute
	quiet      = 10 * time.Minute
)

// digest is a hash of an annotation's value; 0 if there is none.
type digest uint64

var seed = maphash.MakeSeed()

func digestOf(value string) digest {
	if value == "" {
		return 0
	}
	return digest(maphash.String(seed, value)) | 1
}

// pod is the state of one pod's annotation.
type pod struct {
	namespace, name       string
	hostNetwork, finished bool
	// needsReady means that the condition kube.NetworkReady is a readiness gate of the pod, isReady
	// that the condition is true, and confirmed that the backend has confirmed all interfaces.
	needsReady, isReady, confirmed bool

	// have is the value at the API server, as of revision.
	have     digest
	revision string
	// wrote means that the API server has accepted written. sends means that sent may be
	// in progress or accepted.
	wrote, sends  bool
	written, sent digest
	// tampered means that someone else has changed the written value.
	tampered bool

	since     time.Time // when it was marked; zero: the annotation is correct
	notBefore time.Time // when it may be written again
	failures  int       // since the last write
	restored  time.Time
	restores  int
}

// see updates the state from the API server, and reports whether the annotation must be
// compared.
func (p *pod) see(s kube.PodSeen) bool {
	first := p.revision == ""
	if !first && older(s.ResourceVersion, p.revision) {
		return false
	}
	p.revision, p.finished = s.ResourceVersion, s.Finished
	p.needsReady, p.isReady = s.NeedsReady, s.IsReady || p.isReady
	have := digestOf(s.Annotation)
	if !first && have == p.have {
		return false
	}
	p.have = have
	ours := p.sends && have == p.sent
	if p.wrote && have != p.written && !ours {
		p.tampered = true
	}
	return true
}

// took records that the API server has accepted the sent value, and reports whether that restored
// a value that someone else had changed. A newer state may already have been seen.
func (p *pod) took(revision string, now time.Time) (restored bool) {
	p.wrote, p.written = true, p.sent
	p.failures, p.notBefore = 0, time.Time{}
	if older(revision, p.revision) {
		return false
	}
	p.have, p.revision = p.sent, revision
	if !p.tampered {
		return false
	}
	p.tampered = false
	if now.Sub(p.restored) > quiet {
		p.restores = 0
	}
	p.notBefore = now.Add(backoff(p.restores, minRestore, maxRestore))
	p.restored = now
	p.restores++
	return true
}

// becomesReady reports whether the condition must be written. It is written once: if somebody else
// changes it, that is their decision. The network of a pod on the host network is its node's.
func (p *pod) becomesReady() bool {
	return p.needsReady && (p.confirmed || p.hostNetwork) && !p.isReady
}

// settle records that the annotation is correct.
func (p *pod) settle() {
	p.since, p.failures, p.tampered = time.Time{}, 0, false
}

// older reports whether resource version a is older than b. It returns false if one of them is
// not a number, so that the later event counts.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// backoff returns least, doubled n times, but at most most.
func backoff(n int, least, most time.Duration) time.Duration {
	if n > 30 {
		return most
	}
	return min(least<<n, most)
}
