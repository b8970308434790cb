package coe

import (
	"fmt"
	"iter"
	"maps"
	"regexp"
	"strings"
)

// ProfilesAnnotation is the annotation, and the key of the label, in which pods and namespaces
// name security profiles (docs/decisions/0047-access-lists-are-security-profiles.md).
const ProfilesAnnotation = AnnotationPrefix + "security-profiles"

// An object that names a security profile has a label for it, with a key that no source can
// give a label: it has a colon. So selectors select the pods with a profile like others.
const profileKey = "profile:"

// Limits of the profiles that an object names, so that a tenant cannot make the PolicySet large.
const (
	maxProfiles    = 16
	maxProfileName = 253
)

// tooManyProfiles stands for all names of an object that exceeds a limit. The object names a
// profile that does not exist, so its pods have no connections.
var tooManyProfiles = fmt.Sprintf("(more than %d names, or a name with more than %d characters)", maxProfiles, maxProfileName)

// WithProfiles returns labels of an object that also names security profiles. Empty names are
// left out.
func (l Labels) WithProfiles(names ...string) Labels {
	labels, profiles := maps.Collect(l.All()), map[string]string{}
	for _, name := range names {
		name = profileName(name)
		if len(name) > maxProfileName || len(profiles) == maxProfiles && profiles[profileKey+name] != name {
			labels[profileKey+tooManyProfiles] = ""
			return NewLabels(labels)
		}
		if name != "" {
			profiles[profileKey+name] = name
		}
	}
	for key := range profiles {
		labels[key] = ""
	}
	return NewLabels(labels)
}

// Profiles returns the names of the security profiles among labels, sorted.
func (l Labels) Profiles() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range l.All() {
			if name, is := strings.CutPrefix(key, profileKey); is && !yield(name) {
				return
			}
		}
	}
}

// NamesProfiles reports whether there is a security profile among labels.
func (l Labels) NamesProfiles() bool {
	for range l.Profiles() {
		return true
	}
	return false
}

// PodLabels returns the labels by which policies select a pod: its own, and the profiles that its
// namespace names for all its pods.
func PodLabels(ofNamespace, ofPod Labels) Labels {
	if !ofNamespace.NamesProfiles() {
		return ofPod
	}
	labels := maps.Collect(ofPod.All())
	for name := range ofNamespace.Profiles() {
		labels[profileKey+name] = ""
	}
	return NewLabels(labels)
}

// ProfileSelector selects the pods with a security profile.
func ProfileSelector(name string) Selector {
	return Selector{Requirements: []Requirement{{Key: profileKey + profileName(name), Operator: Exists}}}
}

// uuid is a UUID in either case.
var uuid = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// profileName returns a name in canonical form. The names of Netvirt's security groups are UUIDs,
// and remote-group-id has them in lower case. A label has no byte 0.
func profileName(name string) string {
	if name = strings.TrimSpace(name); uuid.MatchString(name) {
		return strings.ToLower(name)
	}
	return strings.ReplaceAll(name, "\x00", "\uFFFD")
}

// Profile returns the name of the security profile that a selector selects; empty if it is of
// another form.
func (s *Selector) Profile() string {
	if len(s.Requirements) != 1 {
		return ""
	}
	name, _ := strings.CutPrefix(s.Requirements[0].Key, profileKey)
	if name == s.Requirements[0].Key {
		return ""
	}
	return name
}

// UnknownProfile returns what stands for a security profile that an object names and that does
// not exist: the pods have no connections.
func UnknownProfile(name string) *PolicySpec {
	p := &PolicySpec{Policy: Policy{Name: name, Kind: AccessList}, Pods: ProfileSelector(name)}
	p.Close("")
	return p
}
