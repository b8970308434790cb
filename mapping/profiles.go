package mapping

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// profiles adds a problem for the namespace, and one for each pod, that names security profiles that
// do not exist, or that are not enforced.
func (b *builder) profiles() {
	if b.PolicySet == nil || len(b.PolicySet.Profiles) == 0 {
		return
	}
	if n := b.Configured; n != nil {
		b.namedProfiles("namespace", n.UID, n.Name, n.Labels)
	}
	for _, p := range b.Pods {
		b.namedProfiles("pod", p.UID, p.Name, p.Labels)
	}
}

// namedProfiles adds the problem of an object that names the security profiles of labels.
func (b *builder) namedProfiles(kind, uid, name string, labels coe.Labels) {
	names := slices.Collect(labels.Profiles())
	if b.Limits.NoACLs && len(names) > 0 {
		b.unenforced(kind, uid, name, "security profiles are not enforced, because the backend has no ACLs: traffic that they forbid is allowed")
		return
	}
	unknown := slices.DeleteFunc(names, func(name string) bool { return !b.PolicySet.Unknown[name] })
	if len(unknown) == 0 {
		return
	}
	pods := "the pod has"
	if kind == "namespace" {
		pods = "its pods have"
	}
	b.problems = append(b.problems, coe.Problem{
		Namespace: b.Namespace, Kind: kind, UID: uid, Name: name, Reason: coe.ProfileUnknown, Message: fmt.Sprintf(
			"%s no connections, because no access list has the name of the security profile %s: create the list over RESTCONF, or correct %s",
			pods, quoted(unknown), coe.ProfilesAnnotation),
	})
}

// quoted returns names for a message, which must be short: each pod can have one, and tenants choose the
// names.
func quoted(names []string) string {
	const most, longest = 3, 64
	var texts []string
	for _, name := range names[:min(len(names), most)] {
		if len(name) > longest {
			name = strings.ToValidUTF8(name[:longest], "") + "…"
		}
		texts = append(texts, fmt.Sprintf("%q", name))
	}
	if more := len(names) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// profileProblems returns a problem for each access list that no object names, that the backend cannot
// enforce, or that has an entry for the pods of a profile that does not exist. An invalid list has its own
// problem.
func (s Settings) profileProblems(set *coe.PolicySet) (problems []coe.Problem) {
	if set == nil || s.Limits.NoACLs {
		return nil
	}
	lists := map[string]bool{}
	for _, p := range set.Policies {
		lists[p.Pods.Profile()] = !set.Unknown[p.Pods.Profile()]
	}
	for _, p := range set.Policies {
		name := p.Pods.Profile()
		if p.Kind != coe.AccessList || set.Unknown[name] {
			continue
		}
		add := func(reason coe.Reason, message string) {
			problems = append(problems, coe.Problem{Kind: string(p.Kind), UID: p.UID, Name: p.Name, Reason: reason, Message: message})
		}
		if len(set.Profiles[name]) == 0 && p.Invalid == "" {
			add(coe.NotEnforced, "the access list has no effect, because no pod and no namespace names it as a security profile: name it with the annotation "+
				coe.ProfilesAnnotation+", or delete it")
		}
		if s.Limits.NoSCTPPorts && len(set.Profiles[name]) > 0 && allowsPortOfSCTP(p) {
			add(coe.NotEnforced, noPortsOfSCTP)
		}
		if unknown := unknownRemotes(p, lists); len(unknown) > 0 {
			add(coe.ProfileUnknown, fmt.Sprintf("entries with the remote-group-id %s permit nothing, because no access list has that name: create it, or correct the entries",
				quoted(unknown)))
		}
	}
	return problems
}

// unknownRemotes returns the names of remote groups of an access list that no list has.
func unknownRemotes(p *coe.PolicySpec, lists map[string]bool) (unknown []string) {
	for _, d := range directions {
		for _, r := range p.Side(d.coe).Rules {
			for _, peer := range r.Peers {
				if name := peer.Pods.Profile(); name != "" && !lists[name] && !slices.Contains(unknown, name) {
					unknown = append(unknown, name)
				}
			}
		}
	}
	slices.Sort(unknown)
	return unknown
}
