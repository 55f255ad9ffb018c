"""Durable subscriptions and the feeds that serve them. The one door: `tailrace.subscription.service`."""
