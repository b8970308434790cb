package report

import (
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// How long an annotation that was put back is left alone when it is changed
// again: twice as long each time, until it was left alone for quiet.
const (
	minRestore = time.Second
	maxRestore = time.Minute
	quiet      = 10 * time.Minute
)

// digest stands for an annotation's value; 0 for none.
type digest uint64

var seed = maphash.MakeSeed()

func digestOf(value string) digest {
	if value == "" {
		return 0
	}
	return digest(maphash.String(seed, value)) | 1
}

// pod is what is known of one pod's annotation.
type pod struct {
	namespace, name       string
	hostNetwork, finished bool

	// have is what the API server has, as of revision.
	have     digest
	revision string
	// wrote tells that it has taken written; sends that sent is on its way, or that
	// it is not known whether it has arrived.
	wrote, sends  bool
	written, sent digest
	// tampered tells that somebody else has changed what was written.
	tampered bool

	since     time.Time // when it was marked; zero: it is as it is wanted
	notBefore time.Time // when it may be written again
	failures  int       // since it was written last
	restored  time.Time
	restores  int
}

// see takes what the API server says, and reports whether that is to be compared
// with what is wanted.
func (p *pod) see(s kube.PodSeen) bool {
	first := p.revision == ""
	if !first && older(s.ResourceVersion, p.revision) {
		return false
	}
	p.revision, p.finished = s.ResourceVersion, s.Finished
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

// took notes that the API server has taken what was sent, and reports whether
// that put back what somebody else had changed. What was seen in the meantime
// may be newer.
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

// settle notes that the annotation is as it is wanted.
func (p *pod) settle() {
	p.since, p.failures, p.tampered = time.Time{}, 0, false
}

// older tells whether one resource version is older than another. One that is
// no number is never older: then what comes last is believed.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// backoff is least, doubled n times, but at most most.
func backoff(n int, least, most time.Duration) time.Duration {
	if n > 30 {
		return most
	}
	return min(least<<n, most)
}
