"""What the training conversations are about: system prompts, request templates, subjects and follow-ups."""

# fmt: off
SYSTEM_PROMPTS = (
    None,  # the chat template then inserts its own default
    "You are a helpful assistant.",
    "You are a patient teacher. Explain things step by step.",
    "You are an experienced programmer. Answer with short, working examples.",
    "You answer briefly and to the point.",
    "You are a friendly travel guide who loves telling stories.",
    "You are a careful scientist. Say what is known and what is not.",
    "You are an editor who writes clear, simple English.",
)

REQUESTS = (
    "What is {}?",
    "Explain {} to a ten-year-old.",
    "Write a short story about {}.",
    "Give me five facts about {}.",
    "Why is {} important?",
    "What are the advantages and disadvantages of {}?",
    "Write a paragraph about the history of {}.",
    "How does {} affect our daily lives?",
    "List the main steps to learn about {}.",
    "Compare {} with something similar.",
    "Write a polite email asking for information about {}.",
    "Summarize what you know about {} in three sentences.",
    "What questions should I ask an expert on {}?",
    "Write a poem about {}.",
    "Describe a common misunderstanding about {}.",
    "Make a plan for a one-hour lesson about {}.",
    "What would happen to the world without {}?",
    "Give an example of {} and explain it.",
    "Write a dialogue between two friends about {}.",
    "How can a beginner get started with {}?",
)

SUBJECTS = (
    "the water cycle", "photosynthesis", "gravity", "the printing press", "bread baking", "chess", "bicycles", "volcanoes",
    "the Roman Empire", "public libraries", "honey bees", "sleep", "the stock market", "solar panels", "recycling",
    "the violin", "tides", "vaccines", "electric cars", "prime numbers", "fractions", "the alphabet", "maps", "coral reefs",
    "the human heart", "cooking rice", "gardening", "the moon", "glaciers", "rivers", "sorting a list", "recursion",
    "databases", "the internet", "Python functions", "unit tests", "version control", "search engines", "encryption",
    "probability", "triangles", "percentages", "saving money", "writing a resume", "job interviews", "public speaking",
    "time management", "learning a language", "running", "yoga", "healthy breakfasts", "tea", "coffee", "olive oil",
    "ancient Egypt", "the Silk Road", "the French Revolution", "democracy", "trade", "bridges", "skyscrapers", "trains",
    "airplanes", "sailing", "whales", "wolves", "penguins", "forests", "deserts", "earthquakes", "thunderstorms", "climate",
    "atoms", "magnets", "light", "sound", "batteries", "robots", "telescopes", "the periodic table", "DNA", "evolution",
    "dinosaurs", "fossils", "painting", "photography", "poetry", "theatre", "jazz", "folk tales", "mythology", "philosophy",
    "kindness", "friendship", "curiosity", "teamwork", "city parks", "public transport", "school lunches", "board games",
    "puzzles", "summer camps", "lighthouses", "clocks", "paper", "glass", "cotton", "salt", "spices", "markets", "museums",
    "space travel", "the ocean floor", "mountain climbing", "soil", "seeds", "birds", "butterflies", "rainbows", "snow",
)

FOLLOW_UPS = (
    "Can you say that more simply?",
    "Give me an example.",
    "Why is that?",
    "Can you make it shorter?",
    "What should I do next?",
    "Tell me more about the first point.",
    "Thank you. What else should I know?",
    "Could you turn that into a list?",
)
