package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// fetches is how often a page is fetched to see who answers: with two endpoints,
// one of them is missed once in half a million times.
const fetches = 20

func (s *story) attach(ctx context.Context) error {
	for _, p := range []*pod{s.front, s.back} {
		if err := s.serve(ctx, p); err != nil {
			return err
		}
	}
	if err := s.rest.putService(ctx, s.front, s.back); err != nil {
		return err
	}
	if err := s.awaitPages(ctx, s.cart, s.front, s.back); err != nil {
		return err
	}
	table, err := s.runBridge(ctx, "get", "services")
	if err != nil {
		return err
	}
	s.screen.Say("$ coe-bridge get services\n%s", table)
	return nil
}

// takeOut takes the service's pods out: first one, and only the other answers,
// then that one too, and connections are refused.
func (s *story) takeOut(ctx context.Context) error {
	if err := s.rest.putService(ctx, s.back); err != nil {
		return err
	}
	if err := s.awaitPages(ctx, s.cart, s.back); err != nil {
		return err
	}
	if err := s.rest.putService(ctx); err != nil {
		return err
	}
	err := await(ctx, func(ctx context.Context) error {
		page, err := s.lab.HTTPGet(ctx, s.cart.String(), serviceURL)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil
		case err != nil:
			return fmt.Errorf("a service without endpoints does not refuse: %w", err)
		default:
			return fmt.Errorf("a service without endpoints answers: %q", page)
		}
	})
	if err != nil {
		return err
	}
	s.screen.Say("%s -> %s: connection refused, nobody serves", s.cart, serviceURL)
	return nil
}

// serve serves a page in a pod that says whose it is.
func (s *story) serve(ctx context.Context, p *pod) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	_, err = s.lab.Launch(ctx, ovnhost.Command{
		Name: "page-" + p.String(), Pod: p.String(),
		Argv: []string{self, pageCommand, ":" + pagePort, pageOf(p)},
		Ready: func(ctx context.Context) error {
			_, err := s.lab.HTTPGet(ctx, p.String(), "http://127.0.0.1:"+pagePort)
			return err
		},
	})
	return err
}

func pageOf(p *pod) string { return "the page of " + p.String() }

// awaitPages fetches the service's page from a pod until exactly those pods answer.
func (s *story) awaitPages(ctx context.Context, from *pod, answering ...*pod) error {
	want := make([]string, 0, len(answering))
	for _, p := range answering {
		want = append(want, pageOf(p))
	}
	slices.Sort(want)
	err := await(ctx, func(ctx context.Context) error { return s.fetch(ctx, from, want) })
	if err != nil {
		return err
	}
	s.screen.Say("%s -> %s: %s", from, serviceURL, strings.Join(want, ", "))
	return nil
}

// fetch fetches the service's page again and again and compares who answers.
func (s *story) fetch(ctx context.Context, from *pod, want []string) error {
	var got []string
	for range fetches {
		page, err := s.lab.HTTPGet(ctx, from.String(), serviceURL)
		if err != nil {
			return err
		}
		if page = strings.TrimSpace(page); !slices.Contains(got, page) {
			got = append(got, page)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("pages %q come through %s: expected %q", got, serviceURL, want)
	}
	return nil
}
