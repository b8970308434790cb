package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// listTimeout bounds the time in which the suite lists its tests.
const listTimeout = time.Minute

// group is the prefix of the names of the tests of Kubernetes' network group.
const group = "[sig-network] "

// program is the suite, built like the one in Kubernetes' releases.
var program = kube.Program{
	Title: "the end-to-end tests of Kubernetes " + kube.Version, Takes: "five minutes of two processors, and 2 GB of Go's build cache",
	Package: "k8s.io/kubernetes/test/e2e", Tests: true,
	Name: "e2e-" + kube.Version, Binary: "e2e.test",
	LDFlags: strings.Join([]string{
		"-s -w",
		"-X k8s.io/component-base/version.gitVersion=" + kube.Version,
		"-X k8s.io/client-go/pkg/version.gitVersion=" + kube.Version,
	}, " "),
}

// outOfWindow is the server of a test of Kubernetes' issue 74839. It sends TCP segments outside the
// window of the client.
var outOfWindow = kube.Program{
	Title: "the test server of Kubernetes' issue 74839", Takes: "a few seconds",
	Package: "k8s.io/kubernetes/test/images/regression-issue-74839",
	Name:    "regression-issue-74839-" + kube.Version, Binary: "regression-issue-74839", LDFlags: "-s -w",
}

// balancer gives addresses to services of type LoadBalancer.
var balancer = kube.Program{
	Title: "the load balancer of the tests", Takes: "half a minute",
	Package: "./balancer", Name: "balancer-" + kube.Version, Binary: "balancer", LDFlags: "-s -w",
}

// suite is the built suite, with the files of its images.
type suite struct {
	binary      string
	balancer    string
	outOfWindow string
	programs    kubelab.Programs
}

// buildSuite builds the suite, unless the user's cache folder has it.
func buildSuite(ctx context.Context, progress io.Writer) (s *suite, err error) {
	s = &suite{}
	if s.binary, err = program.Build(ctx, progress); err != nil {
		return nil, err
	}
	if s.balancer, err = balancer.Build(ctx, progress); err != nil {
		return nil, err
	}
	if s.outOfWindow, err = outOfWindow.Build(ctx, progress); err != nil {
		return nil, err
	}
	s.programs, err = kubelab.BuildPrograms(ctx, progress)
	return s, err
}

// listed matches a line of --list-tests: the place of a test in the source, and its name.
var listed = regexp.MustCompile(`^ +\S+\.go:\d+: (.*)$`)

// tests returns the names of all tests of the group, sorted.
func (s *suite) tests(ctx context.Context) ([]string, error) {
	lines, err := s.ask(ctx, "--list-tests")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, line := range lines {
		if found := listed.FindStringSubmatch(line); found != nil && strings.HasPrefix(found[1], group) {
			names = append(names, found[1])
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("ask the suite --list-tests: it names none of %s", group)
	}
	slices.Sort(names)
	return names, nil
}

// images returns the names of all images of the suite's pods.
func (s *suite) images(ctx context.Context) ([]string, error) { return s.ask(ctx, "--list-images") }

// ask runs the suite with a flag, and returns the lines that it prints.
func (s *suite) ask(ctx context.Context, flag string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, flag)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask the suite %s: %w: %s", flag, err, stderr.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}
