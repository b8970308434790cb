package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// certificateRoles are what a file of lines "role:ATTRIBUTE=value" says. Of the
// lines that fit a certificate the first counts.
type certificateRoles struct{ lines map[attribute]roleLine }

// attribute is something that a certificate says of its owner.
type attribute struct{ kind, value string }

type roleLine struct {
	number int
	role   Role
}

// attributeKind is where a certificate says something.
type attributeKind struct {
	values func(*x509.Certificate) []string
	// group says that many share the value: it is nobody's name.
	group bool
	// canonical is the one form of a value in the file; nil where it is its own.
	canonical func(string) (string, error)
}

var attributeKinds = map[string]attributeKind{
	"CN":    {values: func(c *x509.Certificate) []string { return []string{c.Subject.CommonName} }},
	"O":     {values: func(c *x509.Certificate) []string { return c.Subject.Organization }, group: true},
	"OU":    {values: func(c *x509.Certificate) []string { return c.Subject.OrganizationalUnit }, group: true},
	"DNS":   {values: dnsNames, canonical: func(s string) (string, error) { return strings.ToLower(s), nil }},
	"EMAIL": {values: func(c *x509.Certificate) []string { return c.EmailAddresses }},
	"URI":   {values: uris},
	"IP":    {values: addresses, canonical: canonicalAddress},
}

func dnsNames(c *x509.Certificate) []string {
	names := make([]string, len(c.DNSNames))
	for i, name := range c.DNSNames {
		names[i] = strings.ToLower(name)
	}
	return names
}

func uris(c *x509.Certificate) []string {
	texts := make([]string, len(c.URIs))
	for i, u := range c.URIs {
		texts[i] = u.String()
	}
	return texts
}

func addresses(c *x509.Certificate) []string {
	texts := make([]string, len(c.IPAddresses))
	for i, a := range c.IPAddresses {
		texts[i] = a.String()
	}
	return texts
}

func canonicalAddress(text string) (string, error) {
	a, err := netip.ParseAddr(text)
	return a.Unmap().String(), err
}

func parseCertificateRoles(content []byte) (*certificateRoles, error) {
	roles := &certificateRoles{lines: map[attribute]roleLine{}}
	for n, line := range textLines(content) {
		role, is, err := parseRoleLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if before, found := roles.lines[is]; found {
			return nil, fmt.Errorf("line %d gives %s=%s a role again: line %d does", n, is.kind, is.value, before.number)
		}
		roles.lines[is] = roleLine{n, role}
	}
	if len(roles.lines) == 0 {
		return nil, errors.New("it gives nobody a role: want lines like \"writer:CN=robot\"")
	}
	return roles, nil
}

func parseRoleLine(line string) (Role, attribute, error) {
	name, rest, _ := strings.Cut(line, ":")
	role, known := roleNames[name]
	if !known {
		return 0, attribute{}, fmt.Errorf("role %q: want reader, writer or node", name)
	}
	kind, value, _ := strings.Cut(rest, "=")
	says, found := attributeKinds[kind]
	if !found || value == "" {
		return 0, attribute{}, fmt.Errorf("%q: want CN, O, OU, DNS, EMAIL, URI or IP, = and a value", rest)
	}
	if says.canonical != nil {
		var err error
		if value, err = says.canonical(value); err != nil {
			return 0, attribute{}, fmt.Errorf("%q: %w", rest, err)
		}
	}
	return role, attribute{kind, value}, nil
}

// identify finds the name and the role of a certificate's owner. The name is what
// the role goes by (RFC 7589 section 7), or the common name.
func (r *certificateRoles) identify(c *x509.Certificate) Identity {
	who := Identity{Name: c.Subject.CommonName}
	first := 0
	for name, kind := range attributeKinds {
		for _, value := range kind.values(c) {
			line, found := r.lines[attribute{name, value}]
			if !found || (first > 0 && first < line.number) {
				continue
			}
			first, who.Role, who.Name = line.number, line.role, value
			if kind.group {
				who.Name = c.Subject.CommonName
			}
		}
	}
	if who.Role == Node {
		return nodeOf(c)
	}
	return who
}

// nodeOf is whose agent has a certificate of the role node: its common name is
// "system:node:" and the node's name, as in Kubernetes. One with another has no role.
func nodeOf(c *x509.Certificate) Identity {
	node, is := strings.CutPrefix(c.Subject.CommonName, nodePrefix)
	if !is || node == "" {
		return Identity{Name: c.Subject.CommonName}
	}
	return agentOf(node, ByCertificate)
}
